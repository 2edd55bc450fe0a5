// Draws the requests of a run: one lane each, time to the right. All lanes share a few paths, one
// for each kind of stretch and of mark, so that 200 lanes are drawn as fast as two.

import { translate } from "./texts.js";

/* The stretch that each event begins, until the next event in its lane. */
const STRETCHES = {
  sent: "way",
  arrived: "wait",
  began: "run",
  ran: "way",
  failed: "way",
  rejected: "way",
  replayed: "way",
  "will retry": "pause",
};
const MARKS = {
  ran: "ran",
  failed: "failed",
  rejected: "rejected",
  replayed: "replayed",
  "no answer": "silent",
};
const WORDS = { began: "view started", "no answer": "no response" };
const HEAD = 24; // pixels, for the axis
const PAUSE = 30; // milliseconds between two drawings, at least
const SHARE = 5; // minimum pause as a multiple of the drawing time: the page stays responsive

const number = (value) => Math.round(value * 10) / 10;

const bar = (x, y, width, height) => `M${number(x)} ${number(y)}h${number(width)}v${number(height)}h${number(-width)}z`;

/* Each mark around its centre, with a radius. */
const SHAPES = {
  // These two are drawn beside the bar that they end, which would cover them.
  ran: (x, y, r) => `M${x + 4} ${y}l${number(r * 0.7)} ${r}L${x + 4 + 2 * r} ${y - r}`,
  again: (x, y, r) => `M${x + 8} ${y - r}v${number(1.1 * r)}m0 ${number(0.8 * r)}v.1`,
  failed: (x, y, r) => `M${x} ${y - r}l${r} ${2 * r}h${-2 * r}z`,
  rejected: (x, y, r) => `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`,
  replayed: (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
  silent: (x, y, r) => `M${x - r} ${y}h${2 * r}`,
};

function laneHeight(count) {
  return count <= 12 ? 26 : count <= 30 ? 18 : count <= 75 ? 11 : 5;
}

function svg(name, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

/* Round numbers for the axis: 1, 2 or 5 of something, with room for their labels. */
function step(span, room) {
  const rough = span / Math.max(2, Math.min(8, room / 70));
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough);
}

export class Timeline {
  #svg;
  #lanes = [];
  #began = null;
  #last = 0; // the latest event, in milliseconds from the beginning
  #ahead = 0; // the server's clock minus performance.now()
  #first = null; // the run that placed the order; later ones are duplicates
  #running = false;
  #scheduled = false;
  #takes = 0; // milliseconds of the last drawing

  constructor(element) {
    this.#svg = element;
    new ResizeObserver(() => this.#schedule()).observe(element);
  }

  clear() {
    this.#lanes = [];
    this.#began = null;
    this.#last = 0;
    this.#first = null;
    this.#running = true;
    this.#schedule();
  }

  /* Add events of the server: [number, lane, what, detail, at in seconds] each. */
  add({ lanes, began, now, events }) {
    this.#began ??= began && began * 1000;
    this.#ahead = now * 1000 - performance.now();
    while (this.#lanes.length < lanes) this.#lanes.push([]);
    const touched = new Set();
    for (const [, lane, what, detail, at] of events) {
      const event = { what, detail, at: at * 1000 };
      this.#lanes[lane - 1]?.push(event);
      if (what === "ran" && !(this.#first?.at <= event.at)) this.#first = event;
      touched.add(lane - 1);
      this.#last = Math.max(this.#last, at * 1000);
    }
    // Several processes write events, so that they may arrive out of order.
    for (const lane of touched) this.#lanes[lane]?.sort((one, other) => one.at - other.at);
    this.#schedule();
  }

  end() {
    this.#running = false;
    this.#schedule();
  }

  inWords() {
    return this.#lanes.map((events) =>
      events
        .filter(({ what }) => !/^(claimed|completed|released|token_spent)$/.test(what))
        .map((event) => {
          const { what, detail, at } = event;
          const more = detail ? translate(" ({detail})", { detail }) : "";
          const words = translate(this.#isDuplicate(event) ? "ran again" : (WORDS[what] ?? what));
          const milliseconds = Math.round(at - this.#began);
          return translate("{words}{more} at {at} ms", { words, more, at: milliseconds });
        })
        .join(translate(", ")),
    );
  }

  #isDuplicate(event) {
    return event.what === "ran" && event !== this.#first;
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    const pause = Math.max(PAUSE, SHARE * this.#takes);
    setTimeout(() => requestAnimationFrame(() => this.#drawAndMeasure()), pause);
  }

  #drawAndMeasure() {
    const start = performance.now();
    this.#draw();
    // The next frame comes after painting, so that painting is measured too.
    requestAnimationFrame(() => (this.#takes = performance.now() - start));
  }

  #draw() {
    this.#scheduled = false;
    const width = this.#svg.clientWidth;
    const count = this.#lanes.length;
    const each = laneHeight(count);
    const height = HEAD + count * each + 8;
    this.#svg.setAttribute("height", height);
    const left = each >= 11 ? 34 : 8;
    const now = this.#running ? performance.now() + this.#ahead : this.#last;
    const span = Math.max(100, (this.#began === null ? 0 : now - this.#began) * 1.02);
    const room = Math.max(1, width - left - 16);
    const x = (at) => left + (Math.max(0, at - this.#began) / span) * room;
    this.#drawAxis(span, left, room, height);
    this.#drawLabels(each, left);
    if (this.#began !== null) this.#drawLanes(x, each, now);
    if (this.#running) this.#schedule();
  }

  #drawLanes(x, each, now) {
    const paths = Object.fromEntries(
      ["way", "pause", "wait", "run", "duplicate", ...Object.keys(SHAPES)].map((name) => [name, []]),
    );
    const radius = Math.max(2, Math.min(5, each / 2 - 1));
    const thick = Math.min(12, each - 1);
    this.#lanes.forEach((events, lane) => {
      const middle = HEAD + (lane + 0.5) * each;
      let stretch = null;
      let since = 0;
      const close = (until) => {
        const [from, to] = [x(since), x(until)];
        const high = { wait: thick, run: thick, duplicate: thick, pause: 2, way: 1.2 }[stretch];
        if (high) paths[stretch].push(bar(from, middle - high / 2, Math.max(1, to - from), high));
      };
      for (const event of events) {
        const { what, at } = event;
        const mark = this.#isDuplicate(event) ? "again" : MARKS[what];
        if (mark) paths[mark].push(SHAPES[mark](number(x(at)), middle, radius));
        if (mark === "again") stretch = "duplicate";
        const next = what === "answered" || what === "no answer" ? null : STRETCHES[what];
        if (next === undefined) continue; // a signal without a stretch
        close(at);
        [stretch, since] = [next, at];
      }
      if (stretch) close(now);
    });
    for (const [name, parts] of Object.entries(paths)) {
      const query = SHAPES[name] ? `[data-mark="${name}"]` : `[data-kind="${name}"]`;
      this.#svg.querySelector(`path${query}`).setAttribute("d", parts.join(""));
    }
  }

  #drawAxis(span, left, room, height) {
    const parts = [];
    for (let at = 0; at <= span; at += step(span, room)) {
      const x = number(left + (at / span) * room);
      parts.push(svg("line", { class: "grid", x1: x, x2: x, y1: HEAD, y2: height }));
      const label = span < 2000 ? `${Math.round(at)} ms` : `${number(at / 1000)} s`;
      const anchor = at === 0 ? "start" : "middle";
      parts.push(svg("text", { x, y: 16, "text-anchor": anchor }, label));
    }
    this.#svg.querySelector("[data-axis]").replaceChildren(...parts);
  }

  #drawLabels(each, left) {
    const labels = this.#svg.querySelector("[data-labels]");
    const wanted = each >= 11 ? this.#lanes.length : 0;
    if (labels.childElementCount === wanted) return;
    const texts = Array.from({ length: wanted }, (_, lane) => {
      const y = HEAD + (lane + 0.5) * each + 4;
      return svg("text", { x: left - 8, y, "text-anchor": "end" }, String(lane + 1));
    });
    labels.replaceChildren(...texts);
  }
}

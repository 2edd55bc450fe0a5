// Starts a run of the lab and shows what is known of it, until it is over.

import { Timeline } from "./timeline.js";

const ASK_EVERY = 150; // milliseconds

const form = document.getElementById("lab");
const buttons = [...form.elements].filter(({ type }) => type === "submit");
const section = document.getElementById("run");
const verdict = document.getElementById("verdict");
const words = document.getElementById("words");
const timeline = new Timeline(document.getElementById("timeline"));

async function getJson(url) {
  const response = await fetch(url, { headers: { Accept: "application/json" } });
  if (!response.ok) throw new Error(`The server answered ${response.status}.`);
  return response.json();
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function times(count) {
  return count === 1 ? "once" : `${count} times`;
}

function showCounts({ counts, effects }) {
  for (const element of section.querySelectorAll("[data-count]")) {
    element.textContent = counts[element.dataset.count] ?? 0;
  }
  section.querySelector("[data-effects]").textContent = effects;
}

async function follow(url) {
  section.hidden = false;
  words.hidden = true;
  verdict.textContent = "Firing…";
  timeline.clear();
  for (let last = 0; ; await pause(ASK_EVERY)) {
    const news = await getJson(`${url}?after=${last}`);
    last = news.events.at(-1)?.[0] ?? last;
    showCounts(news);
    timeline.add(news);
    if (news.is_over) {
      timeline.end();
      verdict.textContent = `${news.lanes} requests, and the side effect happened ${times(news.effects)}.`;
      words.hidden = false;
      return;
    }
  }
}

/* On a small screen, what happens next would happen below its edge. */
function showRun() {
  section.hidden = false;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  section.firstElementChild.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
}

async function start() {
  const response = await fetch(form.action, {
    method: "POST",
    headers: { Accept: "application/json" },
    body: new FormData(form),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.detail ?? `The server answered ${response.status}.`);
  history.replaceState(null, "", answer.page);
  showRun();
  await follow(answer.events);
}

async function whileBusy(work) {
  const pressed = document.activeElement;
  for (const button of buttons) button.disabled = true;
  form.setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    section.hidden = false;
    verdict.textContent = String(error.message ?? error);
  } finally {
    form.removeAttribute("aria-busy");
    for (const button of buttons) button.disabled = false;
    // A button that is disabled loses the focus.
    if (document.activeElement === document.body) pressed.focus?.({ preventScroll: true });
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!buttons[0].disabled) whileBusy(start);
});

// The same as the picture, for those who would rather read or hear it; made when it is wanted.
words.addEventListener("toggle", () => {
  const lines = words.open ? timeline.inWords() : [];
  words.querySelector("ol").replaceChildren(
    ...lines.map((text) => {
      const line = document.createElement("li");
      line.textContent = text;
      return line;
    }),
  );
});

if (section.dataset.events) whileBusy(() => follow(section.dataset.events));

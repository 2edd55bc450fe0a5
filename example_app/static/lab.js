// Starts a run of the lab, and shows its events until it is over.

import { translate } from "./texts.js";
import { Timeline } from "./timeline.js";

const POLL_EVERY = 150; // milliseconds

const form = document.getElementById("lab");
const buttons = [...form.elements].filter(({ type }) => type === "submit");
const section = document.getElementById("run");
const verdict = document.getElementById("verdict");
const words = document.getElementById("words");
const timeline = new Timeline(document.getElementById("timeline"));

async function getJson(url) {
  const response = await fetch(url, { headers: { Accept: "application/json" } });
  if (!response.ok) throw new Error(translate("The server answered {status}.", response));
  return response.json();
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
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
  delete section.dataset.outcome;
  verdict.textContent = translate("Running…");
  timeline.clear();
  for (let last = 0; ; await pause(POLL_EVERY)) {
    const news = await getJson(`${url}?after=${last}`);
    last = news.events.at(-1)?.[0] ?? last;
    showCounts(news);
    timeline.add(news);
    if (news.is_over) {
      timeline.end();
      section.dataset.outcome = news.outcome;
      verdict.textContent = news.verdict;
      words.hidden = false;
      return;
    }
  }
}

/* Scroll to the run, which is below the edge of a small screen. */
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
  const said = translate("The server answered {status}.", response);
  if (!response.ok) throw new Error(answer.detail ?? said);
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
    // A disabled button loses the focus.
    if (document.activeElement === document.body) pressed.focus?.({ preventScroll: true });
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!buttons[0].disabled) whileBusy(start);
});

// The same as the timeline in words, for screen readers among others; made when opened.
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

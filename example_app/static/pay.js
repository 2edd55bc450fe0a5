// Pays over a network that loses responses: with idempotence.fetch, which retries with the same
// key, and for comparison without a key.

import { translate } from "./texts.js";

const TIMES = ["not at all", "once", "twice", "three times", "four times", "five times"];

const form = document.getElementById("pay");
const stepsForm = document.getElementById("pay-in-steps");
let log = document.getElementById("log"); // of the form that was sent last

function say(text, kind = "") {
  const line = document.createElement("li");
  line.textContent = text;
  line.className = kind;
  log.append(line);
}

function judge(text, isRight) {
  const section = log.closest("section");
  section.querySelector(".verdict").textContent = text;
  section.dataset.outcome = isRight ? "right" : "wrong";
}

/* With a key: idempotence.fetch decides when to retry; this page logs each retry. */
function payWithKey(request, url = form.dataset.url) {
  return globalThis.idempotence.fetch(url, {
    ...request,
    timeout: 10_000,
    onRetry({ attempt, delay, error }) {
      const outcome = translate(error ? "no response" : "still in progress");
      const seconds = (delay / 1000).toFixed(1);
      const text = "Attempt {attempt}: {outcome}. Retry in {seconds}\u00a0s.";
      say(translate(text, { attempt, outcome, seconds }), "lost");
    },
  });
}

/* Without a key: each attempt is a payment, and the server cannot recognise a retry. */
async function payPlainly(request) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await fetch(form.dataset.unguardedUrl, request);
    } catch (error) {
      if (attempt === 5) throw error;
      say(translate("Attempt {attempt}: no response. Retry.", { attempt }), "lost");
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
}

function requestOf(fields) {
  return {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      "X-Example-Operation": globalThis.idempotence.newKey(),
      "X-Example-Lose": fields.get("lose"),
    },
    body: JSON.stringify({ amount: Number(fields.get("amount")) }),
  };
}

async function pay() {
  const fields = new FormData(form);
  const before = await showPayments();
  const send = fields.get("how") === "key" ? payWithKey : payPlainly;
  const response = await send(requestOf(fields));
  const answer = await answerOf(response);
  const replayed = response.headers.has("Idempotent-Replayed");
  const how = replayed ? translate(" Replayed: the response to the first attempt.") : "";
  say(translate("Response: payment {number} of {amount} €.{how}", { ...answer, how }), "done");
  const made = (await showPayments()) - before;
  const { amount } = answer;
  const excess = ": {paid} € instead of {amount} €";
  const total = made > 1 ? translate(excess, { paid: made * amount, amount }) : "";
  const times = translate(TIMES[made] ?? "{made} times", { made });
  judge(translate("Paid {times}{total}.", { times, total }), made === 1);
}

async function answerOf(response) {
  const answer = await response.json();
  if (response.ok) return answer;
  throw new Error(answer.detail ?? translate("The server answered {status}.", response));
}

/* The worker that is killed loses the response; the next one skips the steps that are finished. */
async function payInSteps() {
  const key = globalThis.idempotence.newKey();
  const headers = { "Content-Type": "application/json" };
  const kill = new FormData(stepsForm).get("kill");
  if (kill) headers["X-Example-Kill"] = kill;
  const amount = Number(new FormData(form).get("amount"));
  const request = { method: "POST", headers, body: JSON.stringify({ amount }), key };
  const answer = await answerOf(await payWithKey(request, stepsForm.dataset.url));
  const text = "Response: payment {number} of {amount} €.{how}";
  say(translate(text, { ...answer, how: "" }), "done");
  await showPayments();
  const steps = (await showSteps()).filter(({ payment }) => payment === key).reverse();
  for (const { step, pid } of steps) say(translate("Process {pid}: {step}.", { step, pid }));
  const names = steps.map(({ step }) => step).join();
  const processes = new Set(steps.map(({ pid }) => pid)).size;
  const isRight = names === "reserve,charge,book";
  const verdict = isRight
    ? "Each step ran once. Processes: {processes}."
    : "Steps that ran: {names}.";
  judge(translate(verdict, { processes, names }), isRight);
}

async function showSteps() {
  const response = await fetch(stepsForm.dataset.url, { cache: "no-store" });
  const { steps } = await response.json();
  showRows("steps", steps.map(({ step, pid, at }) => [step, pid, at]));
  return steps;
}

function showRows(name, values) {
  const rows = values.map((texts) => {
    const row = document.createElement("tr");
    for (const text of texts) row.insertCell().textContent = text;
    return row;
  });
  if (rows.length > 0) document.getElementById(name).replaceChildren(...rows);
}

async function showPayments() {
  const response = await fetch(form.dataset.listUrl, { cache: "no-store" });
  const { count, tries, payments } = await response.json();
  document.getElementById("count").textContent = count;
  document.getElementById("tries").textContent = tries;
  const row = ({ number, amount, how, paid }) => [number, `${amount} €`, translate(how), paid];
  showRows("payments", payments.map(row));
  return count;
}

const buttons = [form, stepsForm].map((each) => each.querySelector("button"));

/* One payment at a time: the verdict compares counts of before and after. */
function onSubmit(sent, name, send) {
  sent.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (buttons.some((button) => button.disabled)) return;
    for (const button of buttons) button.disabled = true;
    log = document.getElementById(name);
    log.replaceChildren();
    const section = log.closest("section");
    section.querySelector(".verdict").textContent = "";
    delete section.dataset.outcome;
    try {
      await send();
    } catch (error) {
      say(String(error.message ?? error), "lost");
    } finally {
      for (const button of buttons) button.disabled = false;
      sent.querySelector("button").focus();
    }
  });
}

onSubmit(form, "log", pay);
onSubmit(stepsForm, "steps-log", payInSteps);

// Pays over a network that loses responses: with idempotence.fetch, which retries with the same
// key, and for comparison without a key.

import { translate } from "./texts.js";

const TIMES = ["not at all", "once", "twice", "three times", "four times", "five times"];

const form = document.getElementById("pay");
const button = form.querySelector("button");
const log = document.getElementById("log");
const section = document.getElementById("responses");
const verdict = document.getElementById("verdict");

function say(text, kind = "") {
  const line = document.createElement("li");
  line.textContent = text;
  line.className = kind;
  log.append(line);
}

/* With a key: idempotence.fetch decides when to retry; this page logs each retry. */
function payWithKey(request) {
  return globalThis.idempotence.fetch(form.dataset.url, {
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
  const answer = await response.json();
  if (!response.ok) {
    throw new Error(answer.detail ?? translate("The server answered {status}.", response));
  }
  const replayed = response.headers.has("Idempotent-Replayed");
  const how = replayed ? translate(" Replayed: the response to the first attempt.") : "";
  say(translate("Response: payment {number} of {amount} €.{how}", { ...answer, how }), "done");
  const made = (await showPayments()) - before;
  const { amount } = answer;
  const excess = ": {paid} € instead of {amount} €";
  const total = made > 1 ? translate(excess, { paid: made * amount, amount }) : "";
  const times = translate(TIMES[made] ?? "{made} times", { made });
  verdict.textContent = translate("Paid {times}{total}.", { times, total });
  section.dataset.outcome = made === 1 ? "right" : "wrong";
}

async function showPayments() {
  const response = await fetch(form.dataset.listUrl, { cache: "no-store" });
  const { count, tries, payments } = await response.json();
  document.getElementById("count").textContent = count;
  document.getElementById("tries").textContent = tries;
  const rows = payments.map(({ number, amount, how, paid }) => {
    const row = document.createElement("tr");
    for (const text of [number, `${amount} €`, translate(how), paid]) {
      row.insertCell().textContent = text;
    }
    return row;
  });
  if (rows.length > 0) document.getElementById("payments").replaceChildren(...rows);
  return count;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (button.disabled) return;
  button.disabled = true;
  log.replaceChildren();
  verdict.textContent = "";
  delete section.dataset.outcome;
  try {
    await pay();
  } catch (error) {
    say(String(error.message ?? error), "lost");
  } finally {
    button.disabled = false;
    button.focus();
  }
});

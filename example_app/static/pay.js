// Pays over a network that loses answers: with idempotence.fetch, which asks again under the same
// key, and for comparison in the way that careless pages do.

const form = document.getElementById("pay");
const button = form.querySelector("button");
const log = document.getElementById("log");
const verdict = document.getElementById("verdict");

function say(text, kind = "") {
  const line = document.createElement("li");
  line.textContent = text;
  line.className = kind;
  log.append(line);
}

/* With a key. The script decides when to ask again; the page only tells of it. */
function payWithKey(request) {
  return globalThis.idempotence.fetch(form.dataset.url, {
    ...request,
    timeout: 10_000,
    onRetry({ attempt, delay, error }) {
      const what = error ? "no answer. Was it paid?" : "not now.";
      say(`Try ${attempt}: ${what} Asking again in ${(delay / 1000).toFixed(1)}\u00a0s.`, "lost");
    },
  });
}

/* Without: each try is a payment of its own, and nobody can tell. */
async function payPlainly(request) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await fetch(form.dataset.unguardedUrl, request);
    } catch (error) {
      if (attempt === 5) throw error;
      say(`Try ${attempt}: no answer. Was it paid? Asking again.`, "lost");
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
  if (!response.ok) throw new Error(answer.detail ?? `The server answered ${response.status}.`);
  const replayed = response.headers.has("Idempotent-Replayed");
  const how = replayed ? "This is the answer to the first try, again." : "";
  say(`Answer: payment ${answer.number} of ${answer.amount} €. ${how}`, "done");
  const made = (await showPayments()) - before;
  verdict.textContent = made === 1 ? "Paid once." : `Paid ${made} times!`;
}

async function showPayments() {
  const response = await fetch(form.dataset.listUrl, { cache: "no-store" });
  const { count, tries, payments } = await response.json();
  document.getElementById("count").textContent = count;
  document.getElementById("tries").textContent = tries;
  const rows = payments.map(({ number, amount, how, paid }) => {
    const row = document.createElement("tr");
    for (const text of [number, `${amount} €`, how, paid]) {
      row.insertCell().textContent = text;
    }
    return row;
  });
  document.getElementById("payments").replaceChildren(...rows);
  return count;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (button.disabled) return;
  button.disabled = true;
  log.replaceChildren();
  verdict.textContent = "";
  try {
    await pay();
  } catch (error) {
    say(String(error.message ?? error), "lost");
  } finally {
    button.disabled = false;
    button.focus();
  }
});

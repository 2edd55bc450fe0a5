"use strict";

// The tokens that are in use, by form. All clicks on one filled-in form share one token, or each
// of them would be an order of its own. It is dropped when a new order begins.
const tokens = new Map();

async function fetchToken(url) {
  const response = await fetch(url, { cache: "no-store" });
  if (!response.ok) {
    throw new Error(`No token: ${response.status}`);
  }
  return response.json();
}

function tokenOf(form) {
  if (!tokens.has(form)) {
    tokens.set(form, fetchToken(form.dataset.tokenUrl));
  }
  return tokens.get(form);
}

async function requestOf(form) {
  const fields = new FormData(form);
  const headers = { Accept: "application/json" };
  if (form.dataset.tokenUrl) {
    const { token, field } = await tokenOf(form);
    fields.set(field, token);
  }
  if (form.dataset.send === "form") {
    return { method: "POST", headers, body: new URLSearchParams(fields) };
  }
  headers["Content-Type"] = "application/json";
  return { method: "POST", headers, body: JSON.stringify(Object.fromEntries(fields)) };
}

async function click(form) {
  const line = document.createElement("li");
  line.textContent = "…";
  form.querySelector(".answers").append(line);
  try {
    const response = await fetch(form.action, await requestOf(form));
    const answer = await response.json().catch(() => ({}));
    const text = response.ok ? `order ${answer.number}` : answer.detail ?? response.statusText;
    line.textContent = `${response.status}: ${text}`;
    line.className = response.ok ? "taken" : "refused";
    if (response.status === 400) {
      tokens.delete(form); // the token may have expired
    }
  } catch (error) {
    line.textContent = String(error);
    line.className = "refused";
    tokens.delete(form);
  }
}

function cell(text) {
  const element = document.createElement("td");
  element.textContent = text;
  return element;
}

async function showOrders() {
  const response = await fetch(document.body.dataset.ordersUrl, { cache: "no-store" });
  const { count, orders } = await response.json();
  document.getElementById("count").textContent = count;
  const rows = orders.map(({ number, item, how, placed }) => {
    const row = document.createElement("tr");
    row.append(...[number, item, how, placed].map(cell));
    return row;
  });
  document.getElementById("orders").replaceChildren(...rows);
}

async function clickTimes(form, times) {
  await Promise.all(Array.from({ length: times }, () => click(form)));
  await showOrders();
}

for (const form of document.querySelectorAll("form[data-send]")) {
  const answers = form.querySelector(".answers");
  const beginAnew = () => {
    tokens.delete(form);
    answers.replaceChildren();
  };
  form.addEventListener("input", beginAnew);
  form.addEventListener("reset", beginAnew);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clickTimes(form, 1);
  });
  const many = form.querySelector("[data-clicks]");
  many.addEventListener("click", () => {
    if (form.reportValidity()) {
      beginAnew();
      clickTimes(form, Number(many.dataset.clicks));
    }
  });
  for (const button of form.querySelectorAll("button[hidden]")) {
    button.hidden = false;
  }
}

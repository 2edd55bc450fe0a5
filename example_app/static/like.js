// Likes a product without leaving the page. The script allows any number of clicks: the lock on
// the server refuses repeats, and the script shows the refusal.

import { translate } from "./texts.js";

async function like(form) {
  const said = form.querySelector("[data-said]");
  try {
    const response = await fetch(form.action, {
      method: "POST",
      headers: { Accept: "application/json" },
    });
    const answer = await response.json();
    if (response.ok) form.querySelector("[data-count]").textContent = answer.likes;
    said.textContent = response.ok ? translate("Liked, once.") : answer.detail;
  } catch {
    said.textContent = translate("No response. Try again.");
  }
}

for (const form of document.querySelectorAll("form[data-like]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    like(form);
  });
}

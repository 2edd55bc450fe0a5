// Likes without leaving the page. Nothing in here keeps anybody from clicking again: the lock on
// the server does, and this only shows what it says.

async function like(form) {
  const said = form.querySelector("[data-said]");
  try {
    const response = await fetch(form.action, {
      method: "POST",
      headers: { Accept: "application/json" },
    });
    const answer = await response.json();
    if (response.ok) form.querySelector("[data-count]").textContent = answer.likes;
    said.textContent = response.ok ? "Liked, once." : answer.detail;
  } catch {
    said.textContent = "There was no answer. Please try again.";
  }
}

for (const form of document.querySelectorAll("form[data-like]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    like(form);
  });
}

// A block of code or a table that scrolls gets a tab stop, so that arrow keys can scroll it.
const stops = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});

addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("pre, .table-wrapper")) stops.observe(box);
});

// On a phone, the cells of a wide table stand below each other, each with its column's heading.
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const headings = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    if (headings.length < 3) continue;
    table.classList.add("stacks");
    for (const cell of table.querySelectorAll("tbody td")) cell.dataset.heading = headings[cell.cellIndex] ?? "";
  }
});

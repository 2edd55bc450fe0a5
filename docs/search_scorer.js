// Sphinx's own figures, but for the last lines: these pages have a word of everything.
const LAST = ["catalogue", "changelog"];

var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) => (LAST.includes(page) ? score - 1000 : score),
};

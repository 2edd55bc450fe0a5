// Sphinx drops numbers from a query. Its stemmer makes 503 of "503's", so that statuses are found.
function asNoun(word) {
  return /^\d+$/.test(word) ? `${word}'s` : word;
}

// Sphinx takes this function in place of its own.
var splitQuery = (query) => (query.match(/[\p{Letter}\p{Number}_]+/gu) ?? []).map(asNoun);

// The pages in Chinese are a site of their own, with a search of its own.
(({ pathname, search }) => {
  if (!pathname.endsWith("/search.html") || pathname.endsWith("/zh/search.html")) return;
  const asked = new URLSearchParams(search).get("q");
  if (/\p{Script=Han}/u.test(asked)) location.replace(`zh/search.html${search}`);
})(location);

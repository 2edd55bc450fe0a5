// Chinese has no spaces: a query is split into the longest words that the index has, so that
// 防重复提交怎么做 finds 防重复提交. Sphinx takes this function in place of its own.
function wordsOfIndex(text) {
  const { terms, titleterms } = Search._index;
  for (let length = text.length; length > 1; length--) {
    const word = text.slice(0, length);
    if (Object.hasOwn(terms, word) || Object.hasOwn(titleterms, word)) {
      return [word, ...wordsOfIndex(text.slice(length))];
    }
  }
  return text ? wordsOfIndex(text.slice(1)) : [];
}

splitQuery = (query) =>
  (query.match(/\p{Script=Han}+|(?:(?!\p{Script=Han})[\p{Letter}\p{Number}_])+/gu) ?? []).flatMap(
    (part) => (/\p{Script=Han}/u.test(part) ? wordsOfIndex(part) : [asNoun(part)]),
  );

// Sphinx 9.0 and 9.1 name a stemmer that they do not have (sphinx-doc/sphinx#14229).
function ChineseStemmer() {
  return new EnglishStemmer();
}

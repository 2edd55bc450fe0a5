// Ask the search of a built site: node search.mjs FOLDER, with a list of queries as JSON on the
// input. Prints the pages of each query's results in their order, or where the search leads to.
import { readFileSync } from "node:fs";
import vm from "node:vm";

const [folder] = process.argv.slice(2);
const page = readFileSync(`${folder}/search.html`, "utf8");
const scripts = [...page.matchAll(/<script[^>]* src="([^"?]+)/g)].map(([, source]) => source);
const needed = /(search(-zh)?|searchtools|language_data|searchindex|english-stemmer)\.js$/;

function ask(query) {
  let moved = null;
  const location = {
    pathname: `${folder}/search.html`,
    search: `?q=${encodeURIComponent(query)}`,
    replace: (target) => (moved = target),
  };
  const document = { getElementById: () => null };
  const window = {};
  const context = vm.createContext({
    ...{ document, window, location, URLSearchParams, console },
    ...{ _ready: () => {}, _: (text) => text, SPHINX_HIGHLIGHT_ENABLED: false },
  });
  for (const script of scripts.filter((each) => needed.test(each))) {
    vm.runInContext(readFileSync(`${folder}/${script}`, "utf8"), context);
    if (window.Stemmer) context.Stemmer = window.Stemmer;
  }
  if (moved) return [moved];
  const results = vm.runInContext(`Search._performSearch(...Search._parseQuery(${JSON.stringify(query)}))`, context);
  return results.reverse().map(([name, , anchor]) => name + anchor);
}

const queries = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(Object.fromEntries(queries.map((query) => [query, ask(query)]))));

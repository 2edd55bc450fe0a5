// Send one POST by the script over a real network: node send.mjs URL HEADERS, the headers in JSON.
// Prints how often it was sent, and the last status. Waits take no time; each try has its number.
import { pathToFileURL } from "node:url";

await import(pathToFileURL(process.env.SCRIPT_UNDER_TEST));

const [url, headers] = process.argv.slice(2);
const { fetch, setTimeout } = globalThis;
let sent = 0;
globalThis.setTimeout = (callback) => setTimeout(callback);
globalThis.fetch = (request, options) => {
  request.headers.set("X-Attempt", ++sent);
  return fetch(request, options);
};
const response = await idempotence.fetch(url, { method: "POST", headers: JSON.parse(headers) });
console.log(JSON.stringify({ sent, status: response.status }));

// Say of each answer on the standard input, [status, headers, body] in one JSON list, whether the
// script asks again after it.
import { readFileSync } from "node:fs";

import { answer, stage } from "./stage.mjs";

async function asksAgain([status, headers, body]) {
  const { idempotence, sent } = stage({ answers: [answer(status, headers, body), answer(200)] });
  await idempotence.fetch("https://shop.test/orders", { method: "POST" });
  return sent.length === 2;
}

const given = JSON.parse(readFileSync(0, "utf-8"));
console.log(JSON.stringify(await Promise.all(given.map(asksAgain))));

import assert from "node:assert/strict";
import test from "node:test";

import { answer, dropped, problem, settled, stage } from "./stage.mjs";

const URL = "https://shop.test/payments";
const keyOf = (request) => request.headers.get("Idempotency-Key");

/** An answer that does not come, until its request is given up. */
const never = (_, { signal }) =>
  new Promise((_resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason));
  });

test("a request has a key, 128 random bits in quotes, and another request another one", async () => {
  const { idempotence, sent } = stage({ answers: [answer(201)] });
  for (const _ of [1, 2]) assert.equal((await idempotence.fetch(URL, { method: "POST" })).status, 201);
  assert.equal(sent.length, 2);
  assert.match(keyOf(sent[0]), /^"[0-9a-f]{32}"$/);
  assert.notEqual(keyOf(sent[0]), keyOf(sent[1]));
});

for (const [what, first] of [
  ["a network error", dropped()],
  ["a first try that is still running", problem("key-in-progress")],
  ["a 429", answer(429)],
  ["a 429 of somebody else's", problem("too-many-requests", {}, 429)],
  ["a first try that is still running, by another status", problem("key-in-progress", {}, 429)],
  ["a 503 with Retry-After", answer(503, { "Retry-After": "1" })],
  ["a lost lease", problem("lease-lost", { "Retry-After": "1" })],
  ["a refusal that passes, by its header", answer(409, { "Idempotence-Refusal": "key-in-progress" })],
  ["one with the status of a success", answer(201, { "Idempotence-Refusal": "key-in-progress" })],
  ["one that an error handler made a 500", answer(500, { "Idempotence-Refusal": "lease-lost" })],
]) {
  test(`after ${what} the same is sent again under the same key`, async () => {
    const { idempotence, sent, waits } = stage({ answers: [first, first, answer(201)] });
    const options = { method: "POST", body: "tea", headers: { "Content-Type": "text/plain" } };
    const response = await idempotence.fetch(URL, options);
    assert.equal(response.status, 201);
    assert.equal(sent.length, 3);
    assert.equal(waits.length, 2);
    assert.equal(new Set(sent.map(keyOf)).size, 1);
    for (const request of sent) {
      assert.equal(request.method, "POST");
      assert.equal(request.headers.get("Content-Type"), "text/plain");
      assert.equal(await request.text(), "tea");
    }
  });
}

for (const [what, final] of [
  ...[200, 201, 204, 400, 401, 422, 500, 502, 503, 504].map((status) => [status, answer(status)]),
  ...["repeat-submit", "key-repeated", "outcome-unknown", "not-key-in-progress"].map(
    (slug) => [`409 ${slug}`, problem(slug, { "Retry-After": "1" })],
  ),
  ...["repeat-submit", "token-spent", "key-repeated", "outcome-unknown", "response-not-stored"].map(
    (slug) => [`429 ${slug}`, problem(slug, { "Retry-After": "1" }, 429)],
  ),
  ["409 with Retry-After and no more", answer(409, { "Retry-After": "1" })],
  ["a page that is a refusal", answer(503, { "Idempotence-Refusal": "repeat-submit", "Retry-After": "1" }, "<p>")],
  ["a refusal of a later version", answer(429, { "Idempotence-Refusal": "something-new" })],
  ["a 503 that is the result", answer(503, { "Retry-After": "1", "Idempotent-Stored": "false" })],
  ["a replayed 503", answer(503, { "Retry-After": "1", "Idempotent-Replayed": "true" })],
  ["a replayed 429", answer(429, { "Idempotent-Replayed": "true" })],
  ["409 in plain text", answer(409, { "Content-Type": "text/plain" }, '{"type":"key-in-progress"}')],
  ["409 of no type", answer(409, { "Content-Type": "application/json" }, "null")],
  ["409 of broken JSON", answer(409, { "Content-Type": "application/json" }, "{")],
]) {
  test(`${what} is a final answer`, async () => {
    const { idempotence, sent } = stage({ answers: [final] });
    const response = await idempotence.fetch(URL, { method: "POST" });
    assert.equal(response.status, final.status);
    assert.equal(await response.text(), await final.clone().text()); // and its body can be read
    assert.equal(sent.length, 1);
  });
}

for (const base of ["urn:flask-idempotence:", "https://shop.test/problems/", "about:x#", "/p?type="]) {
  test(`the problem is recognised under the base ${base}`, async () => {
    const body = JSON.stringify({ type: `${base}key-in-progress` });
    const running = answer(409, { "Content-Type": "application/problem+json" }, body);
    const { idempotence, sent } = stage({ answers: [running, answer(200)] });
    assert.equal((await idempotence.fetch(URL)).status, 200);
    assert.equal(sent.length, 2);
  });
}

test("the waits double up to a cap, and chance takes up to half of each", async () => {
  for (const [random, expected] of [
    [1, [100, 200, 400, 500, 500]],
    [0, [50, 100, 200, 250, 250]],
  ]) {
    const { idempotence, waits } = stage({ answers: [dropped()], random });
    const options = { retries: 5, minDelay: 100, maxDelay: 500 };
    await assert.rejects(idempotence.fetch(URL, options), /Failed to fetch/);
    assert.deepEqual(waits, expected);
  }
});

test("after the last retry the last answer is returned, or the last error thrown", async () => {
  const busy = stage({ answers: [answer(429)] });
  assert.equal((await busy.idempotence.fetch(URL)).status, 429);
  assert.equal(busy.sent.length, 7);
  const away = stage({ answers: [dropped()] });
  await assert.rejects(away.idempotence.fetch(URL, { retries: 2 }), /Failed to fetch/);
  assert.equal(away.sent.length, 3);
  const once = stage({ answers: [dropped()] });
  await assert.rejects(once.idempotence.fetch(URL, { retries: 0 }), /Failed to fetch/);
  assert.equal(once.sent.length, 1);
});

test("no retry comes before the time that the server asked for, in seconds or as a date", async () => {
  const date = new Date(1_007_000).toUTCString();
  for (const [asked, least] of [["3", 3000], [date, 7000]]) {
    const busy = answer(429, { "Retry-After": asked });
    const { idempotence, waits } = stage({ answers: [busy, answer(200)] });
    await idempotence.fetch(URL);
    assert.deepEqual(waits, [least + 250]); // half of the first wait, by chance
  }
});

test("a server that asks for more than the longest wait has given its final answer", async () => {
  const { idempotence, sent } = stage({ answers: [answer(503, { "Retry-After": "31" })] });
  assert.equal((await idempotence.fetch(URL)).status, 503);
  assert.equal(sent.length, 1);
});

test("what no Retry-After can mean is no Retry-After", async () => {
  for (const nonsense of ["soon", "-1x", ""]) {
    const { idempotence, sent } = stage({ answers: [answer(503, { "Retry-After": nonsense })] });
    assert.equal((await idempotence.fetch(URL)).status, 503);
    assert.equal(sent.length, 1);
  }
});

test("the key may be given, and is written as a string of structured fields", async () => {
  const { idempotence, sent } = stage({ answers: [dropped(), answer(200)] });
  await idempotence.fetch(URL, { key: 'order "7" \\ a' });
  assert.deepEqual(sent.map(keyOf), Array(2).fill('"order \\"7\\" \\\\ a"'));
});

test("a key in the headers stays as it is, unless another one is given", async () => {
  const { idempotence, sent } = stage({ answers: [answer(200)] });
  const headers = { "idempotency-key": "bare" };
  await idempotence.fetch(URL, { headers });
  await idempotence.fetch(URL, { headers, key: "given" });
  await idempotence.fetch(new Request(URL, { headers }));
  assert.deepEqual(sent.map(keyOf), ["bare", '"given"', "bare"]);
});

test("a new key of one's own may serve several calls", async () => {
  const { idempotence, sent } = stage({ answers: [answer(200)] });
  const key = idempotence.newKey();
  for (const _ of [1, 2]) await idempotence.fetch(URL, { key });
  assert.deepEqual(sent.map(keyOf), [`"${key}"`, `"${key}"`]);
});

test("what changes after the call does not change the request", async () => {
  const body = new FormData();
  body.set("item", "tea");
  const spoil = () => {
    body.set("item", "coffee");
    throw dropped();
  };
  const { idempotence, sent } = stage({ answers: [spoil, answer(200)] });
  await idempotence.fetch(URL, { method: "POST", body });
  for (const request of sent) assert.equal((await request.formData()).get("item"), "tea");
});

test("a Request can be sent again with its body", async () => {
  const { idempotence, sent } = stage({ answers: [dropped(), answer(200)] });
  await idempotence.fetch(new Request(URL, { method: "POST", body: "tea" }));
  assert.deepEqual(await Promise.all(sent.map((request) => request.text())), ["tea", "tea"]);
});

test("a stream cannot be sent again, and is refused before anything is sent", async () => {
  const { idempotence, sent } = stage({ answers: [answer(200)] });
  const body = new ReadableStream();
  const call = idempotence.fetch(URL, { method: "POST", body, duplex: "half" });
  await assert.rejects(call, { name: "TypeError", message: /cannot send a stream a second time/ });
  assert.equal(sent.length, 0);
});

test("a mistake of the caller's is told at once", async () => {
  const { idempotence, sent } = stage({ answers: [answer(200)] });
  await assert.rejects(idempotence.fetch("https://"), { name: "TypeError" });
  await assert.rejects(idempotence.fetch(URL, { method: "GET", body: "x" }), { name: "TypeError" });
  assert.equal(sent.length, 0);
});

test("a signal ends it before it begins", async () => {
  const { idempotence } = stage({ answers: [(_, { signal }) => signal.throwIfAborted()] });
  const reason = new Error("changed my mind");
  const call = idempotence.fetch(URL, { signal: AbortSignal.abort(reason) });
  await assert.rejects(call, (error) => error === reason);
});

test("a signal ends it while it waits for the next try", async () => {
  const control = new AbortController();
  const { idempotence, sent, realm } = stage({ answers: [dropped()] });
  realm.setTimeout = () => undefined; // a wait without an end
  const call = idempotence.fetch(URL, { signal: control.signal });
  setTimeout(() => control.abort(), 10);
  await assert.rejects(call, { name: "AbortError" });
  assert.equal(sent.length, 1);
});

test("a signal ends it while a try is under way, and no other follows", async () => {
  const control = new AbortController();
  const { idempotence, sent } = stage({ answers: [never] });
  const call = idempotence.fetch(URL, { signal: control.signal });
  setTimeout(() => control.abort(), 10);
  await assert.rejects(call, { name: "AbortError" });
  await settled();
  assert.equal(sent.length, 1);
});

test("a try that goes unanswered for too long is given up, and made again", async () => {
  const { idempotence, sent, waits } = stage({ answers: [never, answer(200)] });
  assert.equal((await idempotence.fetch(URL, { timeout: 7000 })).status, 200);
  assert.equal(sent.length, 2);
  assert.deepEqual([waits[0], waits[2]], [7000, 7000]);
});

test("a refusal whose body never ends is final when the time of the try is over", async () => {
  const endless = (_, { signal }) => {
    const start = (body) => signal.addEventListener("abort", () => body.error(signal.reason));
    const headers = { "Content-Type": "application/problem+json", "Retry-After": "1" };
    return new Response(new ReadableStream({ start }), { status: 409, headers });
  };
  const { idempotence, sent } = stage({ answers: [endless] });
  const hangs = settled().then(() => assert.fail("no answer"));
  const { status } = await Promise.race([idempotence.fetch(URL, { timeout: 7000 }), hangs]);
  assert.equal(status, 409);
  assert.equal(sent.length, 1);
});

test("every wait is told, with what caused it", async () => {
  const told = [];
  const { idempotence } = stage({ answers: [dropped(), answer(429), answer(200)], random: 1 });
  await idempotence.fetch(URL, { onRetry: (retry) => told.push(retry) });
  const seen = told.map(({ attempt, delay, response, error }) => {
    return [attempt, delay, response?.status, error?.message];
  });
  assert.deepEqual(seen, [
    [1, 500, undefined, "Failed to fetch"],
    [2, 1000, 429, undefined],
  ]);
  assert.equal(told[1].response.bodyUsed, true); // what nobody reads holds no connection
});

test("an option that is undefined has its default", async () => {
  const { idempotence, sent } = stage({ answers: [answer(429)] });
  await idempotence.fetch(URL, { retries: undefined, onRetry: undefined });
  assert.equal(sent.length, 7);
});

test("the platform's own options reach it, and ours do not trouble it", async () => {
  const { idempotence, sent } = stage({ answers: [answer(200)] });
  await idempotence.fetch(URL, { method: "PATCH", credentials: "omit", redirect: "manual", key: "k" });
  const [{ method, credentials, redirect }] = sent;
  assert.deepEqual([method, credentials, redirect], ["PATCH", "omit", "manual"]);
});

test("loaded twice, it is one", () => {
  const { realm, load, idempotence } = stage();
  load();
  assert.deepEqual(Object.keys(idempotence), ["fetch", "token", "renew", "newKey"]);
  assert.equal(realm.idempotence, idempotence);
});

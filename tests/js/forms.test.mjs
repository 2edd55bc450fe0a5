import assert from "node:assert/strict";
import test from "node:test";

import { NAMES, Page, answer, dropped, settled, stage } from "./stage.mjs";

function issuing(expires_in = 300) {
  let count = 0;
  return () => answer(200, {}, JSON.stringify({ token: `fresh${++count}`, expires_in }));
}

function open(options = {}, { answers = [issuing()], ...staged } = {}) {
  const page = new Page(options);
  return { page, ...stage({ answers, page, ...staged }) };
}

const isBusy = ({ form }) => form.classes.has("idempotence-busy");

const HELD = { value: "issued", idempotenceExpiresIn: "300" };

test("one submit goes out, with the button that was pressed, and the second is ignored", async () => {
  const { page, sent } = open({ field: HELD });
  page.submit(page.form, page.pay);
  page.submit(page.form, page.pay); // before any timer
  await settled();
  page.submit(page.form, page.save);
  page.submit();
  assert.deepEqual(page.submissions, [
    { note: "typed", idempotence_token: "issued", action: "pay" },
  ]);
  assert.equal(sent.length, 0);
});

/** Hide properties behind an element, as fields of a form and images of a document do. */
function hide(node, element, names) {
  for (const name of names) Object.defineProperty(node, name, { value: element });
}

test("a field or an image with the name of a property switches nothing off", async () => {
  const known = ["matches", "classList", "getRootNode", "requestSubmit", "activeElement"];
  assert.ok(known.every((name) => NAMES.includes(name)));
  for (const name of NAMES) {
    const { page } = open({ field: { value: "" } }, { answers: [answer(500), issuing()] });
    hide(page.form, page.field, [name]);
    hide(page.document, page.field, [name]);
    page.pay.focus();
    for (const _ of "123") page.submit(page.form, page.pay); // in vain: there is no token
    page.active = page.body;
    await settled();
    assert.deepEqual([page.active.value, page.form.events.length], ["pay", 1], name);
    for (const token of ["fresh1", "fresh2"]) {
      for (const _ of "123") page.submit(page.form, page.pay);
      await settled();
      assert.equal(page.submissions.pop().idempotence_token, token, name);
      const state = [page.submissions.length, isBusy(page), page.pay.disabled];
      assert.deepEqual(state, [0, true, true], name);
      page.show(true);
    }
    await settled();
    page.submit();
    page.navigation.hear({ type: "navigateerror" }, false);
    assert.deepEqual([isBusy(page), page.form.attributes.has("aria-busy")], [false, false], name);
  }
});

test("an element whose id is the name of the script does not keep it out", () => {
  const page = new Page();
  Object.assign(page.globals, { idempotence: page.field, navigation: page.form });
  hide(page.form, page.field, ["addEventListener"]);
  const { idempotence, load } = stage({ page });
  page.submit();
  assert.equal(isBusy(page), true);
  load(); // as a module, too
  assert.equal(page.window.listeners.length, 3);
  assert.deepEqual(Object.keys(idempotence), ["fetch", "token", "renew", "newKey"]);
});

test("a submit event may be sent to anything, a window too", () => {
  const { page } = open({ field: HELD });
  for (const target of [page.window, page.form]) page.submit(target);
  assert.deepEqual([page.submissions.length, isBusy(page)], [2, true]);
});

test("while it is under way the form is busy and its buttons are disabled", async () => {
  const { page } = open({ field: HELD });
  page.submit(page.form, page.pay);
  assert.equal(page.pay.disabled, false); // or the browser would leave it out
  await settled();
  assert.deepEqual([page.pay.disabled, page.save.disabled], [true, true]);
  assert.equal(page.pay.getAttribute("autocomplete"), "off");
  assert.equal(page.form.getAttribute("aria-busy"), "true");
  assert.equal(isBusy(page), true);
});

test("a second submit is seen by none of the page's own listeners", () => {
  const { page } = open({ field: HELD });
  let seen = 0;
  page.form.addEventListener("submit", () => seen++);
  page.submit();
  page.submit();
  assert.equal(seen, 1);
});

test("a form that is not marked is left alone", async () => {
  const { page } = open({ field: { value: "" } });
  page.form.removeAttribute("data-idempotence");
  page.submit();
  page.submit();
  await settled();
  assert.equal(page.submissions.length, 2);
  assert.equal(page.pay.disabled, false);
});

test("a form without a token is sent once, too", async () => {
  const { page, sent } = open();
  page.submit(page.form, page.pay);
  page.submit(page.form, page.pay);
  await settled();
  assert.deepEqual(page.submissions, [{ note: "typed", action: "pay" }]);
  assert.deepEqual([sent.length, page.pay.disabled], [0, true]);
});

test("what the page handles itself is not ours", async () => {
  const { page } = open({ field: HELD });
  page.form.addEventListener("submit", (event) => event.preventDefault());
  page.submit();
  await settled();
  assert.deepEqual([isBusy(page), page.pay.disabled], [false, false]);
});

test("a form of a dialog sends nothing, and is left alone", async () => {
  const { page } = open({ field: { value: "" }, form: { method: "dialog" } });
  page.submit();
  await settled();
  assert.equal(isBusy(page), false);
});

test("an empty field is filled first, then the same button's submit goes out", async () => {
  const { page, sent } = open({ field: { value: "" } });
  let seen = 0;
  page.form.addEventListener("submit", () => seen++);
  page.submit(page.form, page.save);
  assert.equal(page.submissions.length, 0);
  assert.deepEqual([isBusy(page), page.save.disabled], [true, true]);
  page.submit(page.form, page.pay);
  page.submit();
  await settled();
  assert.deepEqual(page.submissions, [
    { note: "typed", idempotence_token: "fresh1", action: "save" },
  ]);
  assert.deepEqual(sent.map(({ url }) => url), ["https://shop.test/token"]);
  assert.deepEqual([isBusy(page), page.save.disabled, seen], [true, true, 1]);
  page.submit();
  assert.equal(page.submissions.length, 1);
});

test("the page says where tokens are issued, and the field what for", async () => {
  const meta = { tokenUrl: "/shop/once?v=1", tokenField: "ticket" };
  const field = { name: "ticket", value: "", idempotencePurpose: "a b" };
  const { page, sent } = open({ field, meta });
  page.submit();
  await settled();
  assert.deepEqual(sent.map(({ url }) => url), ["https://shop.test/shop/once?v=1&purpose=a%20b"]);
  assert.equal(page.submissions[0].ticket, "fresh1");
});

test("where no tokens are issued, the form goes out as it is", async () => {
  const { page, sent } = open({ field: { value: "" }, meta: { tokenUrl: null } });
  page.submit();
  await settled();
  assert.deepEqual([page.submissions.length, sent.length], [1, 0]);
});

test("a token that has grown old while the page lay open is renewed before it is sent", async () => {
  for (const [seconds, tokens, token] of [[269, 0, "issued"], [271, 1, "fresh1"]]) {
    const now = () => 1_000_000 + seconds * 1000;
    const { page, sent } = open({ field: HELD }, { now });
    page.submit();
    await settled();
    assert.equal(sent.length, tokens);
    assert.deepEqual(page.submissions, [{ note: "typed", idempotence_token: token }]);
  }
});

test("the age of a fetched token counts from when it was fetched", async () => {
  let seconds = 1000;
  const now = () => 1_000_000 + seconds * 1000;
  const { page, idempotence, sent } = open({ field: HELD }, { now });
  await idempotence.renew(page.form);
  seconds += 100;
  page.submit();
  await settled();
  assert.deepEqual([sent.length, page.submissions[0].idempotence_token], [1, "fresh1"]);
  const later = open({ field: HELD }, { now });
  await later.idempotence.renew(later.page.form);
  seconds += 271;
  later.page.submit();
  await settled();
  assert.equal(later.page.submissions[0].idempotence_token, "fresh2");
});

test("a token without a known lifetime is sent as it is", async () => {
  const { page, sent } = open({ field: { value: "issued" } }, { now: () => 9e12 });
  page.submit();
  await settled();
  assert.deepEqual([sent.length, page.submissions.length], [0, 1]);
});

for (const [what, refusal] of [
  ["the network is down", dropped()],
  ["the server refuses", answer(500)],
  ["the server says why not", answer(400, {}, '{"detail": "no"}')],
  ["another page answers", answer(200, {}, "<!doctype html>")],
]) {
  test(`no token because ${what}: nothing is sent, and the form is as it was`, async () => {
    const { page } = open({ field: { value: "" } }, { answers: [refusal] });
    page.pay.focus();
    page.submit(page.form, page.pay);
    page.active = page.body; // what disabling a button does
    await settled();
    await settled();
    assert.equal(page.submissions.length, 0);
    assert.deepEqual([page.pay.disabled, page.save.disabled, isBusy(page)], [false, false, false]);
    assert.equal(page.form.getAttribute("aria-busy"), null);
    assert.equal(page.active, page.pay);
    assert.deepEqual([...page.form.classes], ["idempotence-failed"]);
    const [{ type, bubbles, detail }] = page.form.events;
    assert.deepEqual([type, bubbles], ["idempotence:failed", true]);
    assert.equal(typeof detail.error.message, "string");
  });
}

test("after a failure the form can be sent, and says no longer that it failed", async () => {
  const answers = [answer(500), issuing()];
  const { page } = open({ field: { value: "" } }, { answers });
  page.submit();
  await settled();
  page.submit();
  await settled();
  assert.equal(page.submissions.length, 1);
  assert.deepEqual([...page.form.classes], ["idempotence-busy"]);
});

test("what became invalid while the token was fetched is not sent", async () => {
  const { page } = open({ field: { value: "" } });
  page.submit(page.form, page.pay);
  page.form.valid = false;
  await settled();
  assert.deepEqual([page.submissions.length, isBusy(page), page.pay.disabled], [0, false, false]);
});

test("a button that was disabled before stays so", async () => {
  const { page, idempotence } = open({ field: HELD });
  page.save.disabled = true;
  page.submit(page.form, page.pay);
  await settled();
  await idempotence.renew(page.form);
  assert.deepEqual([page.pay.disabled, page.save.disabled], [false, true]);
});

test("a page that the browser kept is ready again, with a fresh token", async () => {
  const { page } = open({ field: HELD });
  page.submit(page.form, page.pay);
  await settled();
  page.show(true);
  assert.deepEqual([isBusy(page), page.pay.disabled, page.field.value], [false, false, ""]);
  await settled();
  assert.equal(page.field.value, "fresh1");
  page.submit(page.form, page.pay);
  assert.deepEqual(
    page.submissions.map((submission) => submission.idempotence_token),
    ["issued", "fresh1"],
  );
});

test("a submit that comes before the fresh token waits for it, and asks for no other", async () => {
  const { page, sent } = open({ field: HELD });
  page.submit();
  page.show(true);
  page.submit();
  await settled();
  assert.equal(sent.length, 1);
  assert.equal(page.submissions[1].idempotence_token, "fresh1");
});

test("a fresh token that could not be had is asked for again by the next submit", async () => {
  const { page } = open({ field: HELD }, { answers: [answer(500), issuing()] });
  page.submit();
  page.show(true);
  await settled();
  assert.equal(page.field.value, "");
  page.submit();
  await settled();
  assert.equal(page.submissions[1].idempotence_token, "fresh1");
});

test("a page that is left and shown once more keeps the token that it did not send", async () => {
  const { page, sent } = open({ field: HELD });
  page.submit(page.form, page.pay);
  for (const _ of [1, 2]) {
    page.show(true); // the first time before any timer
    await settled();
  }
  assert.deepEqual([sent.length, page.field.value, page.pay.disabled], [1, "fresh1", false]);
});

test("a page may take a submit back while the token is fetched", async () => {
  const { page, idempotence } = open({ field: { value: "" } });
  page.submit();
  await idempotence.renew(page.form);
  await settled();
  assert.deepEqual([page.submissions.length, isBusy(page)], [0, false]);
  page.submit();
  assert.equal(page.submissions.length, 1);
});

test("a page whose form was not sent keeps its token when it is shown, kept or not", async () => {
  for (const persisted of [true, false]) {
    const { page, sent } = open({ field: HELD });
    page.show(persisted);
    await settled();
    assert.deepEqual([page.field.value, sent.length], ["issued", 0]);
  }
});

test("a page made anew for the back button trusts no token that is in it", async () => {
  const { page } = open({ field: HELD, type: "back_forward" });
  page.show(false);
  assert.equal(page.field.value, "");
  await settled();
  assert.equal(page.field.value, "fresh1");
  const early = open({ field: HELD, type: "back_forward" });
  early.page.submit(); // before it was shown
  await settled();
  assert.equal(early.page.submissions[0].idempotence_token, "fresh1");
});

test("after a reload, a field's token is trusted only where the browser restores none", async () => {
  for (const [autocomplete, expected] of [[undefined, "fresh1"], ["off", "issued"]]) {
    const { page } = open({ field: HELD, type: "reload" });
    if (autocomplete) page.field.setAttribute("autocomplete", autocomplete);
    page.submit();
    await settled();
    assert.equal(page.submissions[0].idempotence_token, expected);
  }
});

test("a submit that was stopped keeps its token, however old: it may have been done", async () => {
  let seconds = 0;
  const { page, sent } = open({ field: HELD }, { now: () => 1_000_000 + seconds * 1000 });
  page.submit(page.form, page.pay);
  await settled();
  page.navigation.hear({ type: "navigateerror" }, false);
  assert.deepEqual([isBusy(page), page.pay.disabled, page.field.value], [false, false, "issued"]);
  seconds = 1000;
  page.submit(page.form, page.pay);
  assert.deepEqual(
    page.submissions.map((submission) => submission.idempotence_token),
    ["issued", "issued"],
  );
  assert.equal(sent.length, 0);
});

test("a navigation that fails while the token is fetched changes nothing", async () => {
  const { page } = open({ field: { value: "" } });
  for (const count of [1, 2]) {
    page.submit();
    page.navigation.hear({ type: "navigateerror" }, false);
    assert.equal(isBusy(page), true);
    await settled();
    assert.equal(page.submissions.length, count);
    page.show(true);
    page.field.value = "";
    await settled();
    page.field.value = "";
  }
});

test("a form without a new page is given back after half a minute, its token unchanged", async () => {
  const { page, halfAMinute } = open({ field: HELD });
  page.submit(page.form, page.pay);
  await settled();
  halfAMinute();
  assert.deepEqual([isBusy(page), page.pay.disabled, page.field.value], [false, false, "issued"]);
});

test("the half minute of one submit does not end the next one", async () => {
  const { page, halfAMinute } = open({ field: HELD });
  page.submit();
  page.show(true);
  halfAMinute();
  await settled();
  page.submit();
  page.navigation.hear({ type: "navigateerror" }, false);
  page.field.value = "";
  page.submit(); // fetches a token
  halfAMinute();
  assert.equal(isBusy(page), true);
});

test("a form whose answer goes to another window is ready again after a second", async () => {
  const { page, waits } = open({ field: HELD, form: { target: "_blank" } });
  page.submit();
  assert.deepEqual([page.submissions.length, isBusy(page), waits], [1, true, [1000]]);
  await settled();
  assert.deepEqual([isBusy(page), page.field.value], [false, "fresh1"]);
  const same = open({ field: HELD, form: { target: "_SELF" } });
  same.page.submit();
  assert.deepEqual(same.waits, []);
});

test("a script may ask for a token, and is told if there is none", async () => {
  const { idempotence, sent } = open();
  assert.equal((await idempotence.token("pay")).token, "fresh1");
  assert.equal(sent[0].url, "https://shop.test/token?purpose=pay");
  assert.equal(sent[0].cache, "no-store");
  assert.equal(sent[0].headers.get("Idempotency-Key"), null);
  const none = open({ meta: { tokenUrl: null } });
  await assert.rejects(none.idempotence.token(), /issues no tokens/);
});

for (const [body, text] of [
  ['{"detail":"请稍候"}', "请稍候"],
  ['{"detail":{"type":"x"},"message":"Später."}', "Später."], // APIFlask's
  ["<p>No.</p>", "/token answered 503"],
  ["null", "/token answered 503"],
]) {
  test(`where no token is issued, the error says: ${text}`, async () => {
    const refusal = answer(503, { "Idempotence-Refusal": "store-unavailable" }, body);
    const { idempotence } = open({}, { answers: [refusal] });
    await assert.rejects(idempotence.token(), { message: text });
  });
}

test("an error of another kind keeps its text to itself", async () => {
  const { idempotence } = open({}, { answers: [answer(500, {}, '{"detail":"a secret"}')] });
  await assert.rejects(idempotence.token(), { message: "/token answered 500" });
});

test("the page says how the key's header is called", async () => {
  const { idempotence, sent } = open({ meta: { keyHeader: "X-Once" } });
  await idempotence.fetch("/pay", { key: "k" });
  assert.equal(sent[0].headers.get("X-Once"), '"k"');
});

/*
 * Flask-Idempotence in the browser: forms that are sent once, and a fetch that may be repeated.
 *
 * This is a plain script, which defines globalThis.idempotence; idempotence.mjs beside it is the
 * same as a module. It runs no inline code and needs no more of a content security policy than
 * script-src and connect-src for its own site. Times are milliseconds unless a name says seconds.
 */
(() => {
  "use strict";
  /* Not idempotence itself: an element with that id, or a variable of the page's, has the name. */
  const LOADED = Symbol.for("flask-idempotence");
  if (globalThis[LOADED]) return; // on one page as a script and as a module

  /* A property of a form or document as its interface defines it: a form's field called "matches"
     hides form.matches, and an image of that name document.matches. */
  const pure = (node, name) => Reflect.get(Object.getPrototypeOf(node), name, node);
  const call = (node, name, ...values) => pure(node, name).apply(node, values);

  /* The settings in <meta name="idempotence">, over the server's defaults. */
  function settings() {
    const page = globalThis.document;
    const meta = page && call(page, "querySelector", 'meta[name="idempotence"]');
    return {
      tokenUrl: "/token",
      tokenField: "idempotence_token",
      tokenHeader: "Idempotence-Token",
      keyHeader: "Idempotency-Key",
      ...(meta && JSON.parse(meta.content)),
    };
  }

  // ---- Requests that are repeated until they are answered

  const PATIENCE = { retries: 6, minDelay: 500, maxDelay: 30_000, timeout: 0, onRetry() {} };

  /* Refusals after which another try may succeed. The client in Python has the same. */
  const PASSING = new Set(["key-in-progress", "lease-lost", "store-unavailable"]);

  /* Refusals that no further try changes, or that one would evade, under any status. */
  const FINAL = new Set([
    "repeat-submit",
    "token-missing",
    "token-invalid",
    "token-expired",
    "token-not-yours",
    "token-spent",
    "key-missing",
    "key-invalid",
    "key-reused",
    "key-repeated",
    "outcome-unknown",
    "response-not-stored",
  ]);

  /* One logical request: fetch, with one key for all its tries. */
  async function fetchOnce(resource, options = {}) {
    const { key, retries, minDelay, maxDelay, timeout, onRetry, ...init } = options;
    if (typeof ReadableStream !== "undefined" && init.body instanceof ReadableStream) {
      throw new TypeError(
        "idempotence.fetch cannot send a stream a second time: pass the whole body as a " +
          "string, Blob, ArrayBuffer, FormData or URLSearchParams",
      );
    }
    // The request is made once, so that every try sends what the first one sent.
    const request = new Request(resource, init);
    const header = settings().keyHeader;
    if (key != null || !request.headers.has(header)) {
      request.headers.set(header, quoted(key ?? newKey()));
    }
    return persist(request, { retries, minDelay, maxDelay, timeout, onRetry });
  }

  async function persist(request, wishes) {
    const given = Object.entries(wishes).filter(([, value]) => value !== undefined);
    const { retries, minDelay, maxDelay, timeout, onRetry } = {
      ...PATIENCE,
      ...Object.fromEntries(given),
    };
    for (let attempt = 1; ; attempt++) {
      const { response, error, asked = 0 } = await tryOnce(request, timeout);
      if (request.signal.aborted) throw request.signal.reason ?? error;
      if (asked === null || asked > maxDelay || attempt > retries) {
        if (error) throw error;
        return response;
      }
      // Jitter: clients that failed together do not return together.
      const backoff = Math.min(maxDelay, minDelay * 2 ** (attempt - 1));
      const delay = Math.max(
        backoff * (0.5 + Math.random() / 2),
        asked && asked + Math.random() * minDelay,
      );
      onRetry({ attempt, delay, response, error });
      response?.body?.cancel().catch(() => {}); // locked, if onRetry reads it
      await pause(delay, request.signal);
    }
  }

  /* Send a copy of the request; the original keeps its body for the next time. */
  async function tryOnce(request, timeout) {
    const limit = new AbortController();
    const stop = () => limit.abort(request.signal.reason);
    if (request.signal.aborted) stop();
    request.signal.addEventListener("abort", stop);
    const late = () => limit.abort(new DOMException("No answer in time", "TimeoutError"));
    const timer = timeout ? setTimeout(late, timeout) : undefined;
    try {
      const response = await globalThis.fetch(request.clone(), { signal: limit.signal });
      return { response, asked: await retryIn(response) };
    } catch (error) {
      request.signal.removeEventListener("abort", stop);
      return { error };
    } finally {
      clearTimeout(timer);
    }
  }

  /* Milliseconds until the next try, as the server asks; null for a final answer. */
  async function retryIn(response) {
    if (says(response, "Idempotent-Replayed", "true")) return null; // it will not change
    if (says(response, "Idempotent-Stored", "false")) return null; // nor will this
    const asked = retryAfter(response);
    const refusal = await refusalOf(response);
    // After a lock's interval, another try would run the same operation a second time.
    if (refusal) return PASSING.has(refusal) ? (asked ?? 0) : null;
    if (response.status === 503) return asked;
    return response.status === 429 ? (asked ?? 0) : null;
  }

  function says(response, name, value) {
    return response.headers.get(name)?.toLowerCase() === value;
  }

  /* The slug of a refusal: from the header, which a page of another origin may not read; else from
     a problem document whose type ends with a slug of ours, under any base. */
  async function refusalOf(response) {
    const said = response.headers.get("Idempotence-Refusal");
    if (said) return said.toLowerCase();
    const type = response.headers.get("Content-Type");
    if (!/^application\/problem\+json *(;|$)/i.test(type)) return undefined;
    const problem = await response.clone().json().catch(() => null);
    if (typeof problem?.type !== "string") return undefined;
    // Matched in a text without an end, the pattern would take the square of its length.
    const slug = /[\w-]+$/.exec(problem.type.slice(-64))?.[0];
    return PASSING.has(slug) || FINAL.has(slug) ? slug : undefined;
  }

  function retryAfter(response) {
    const value = response.headers.get("Retry-After");
    if (value === null) return null;
    const left = /^\d+$/.test(value) ? value * 1000 : Date.parse(value) - Date.now();
    return Number.isNaN(left) ? null : Math.max(0, left);
  }

  function pause(delay, signal) {
    return new Promise((resolve, reject) => {
      const stop = () => {
        clearTimeout(timer);
        reject(signal.reason);
      };
      const timer = setTimeout(resolve, delay);
      signal.addEventListener("abort", stop, { once: true });
    });
  }

  /* 128 random bits. Unlike crypto.randomUUID, this also works without https. */
  function newKey() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  /* A string in the form of RFC 9651, as the header's definition has it. */
  function quoted(key) {
    return `"${String(key).replace(/["\\]/g, "\\$&")}"`;
  }

  /* Get a one-time token: { token, expires_in, header, field }, expires_in in seconds. */
  async function token(purpose) {
    const { tokenUrl } = settings();
    if (!tokenUrl) throw new Error("This site issues no tokens: IDEMPOTENCE_TOKEN_URL is None");
    const query = tokenUrl.includes("?") ? "&" : "?";
    const url = purpose ? `${tokenUrl}${query}purpose=${encodeURIComponent(purpose)}` : tokenUrl;
    const request = new Request(url, { cache: "no-store", headers: { Accept: "application/json" } });
    const response = await persist(request, { retries: 2, maxDelay: 3000, timeout: 10_000 });
    if (!response.ok) throw new Error((await textOf(response)) ?? `${url} answered ${response.status}`);
    return response.json();
  }

  /* The text of a refusal, as the server's settings word it. */
  async function textOf(response) {
    if (!(await refusalOf(response))) return undefined;
    const body = await response.clone().json().catch(() => null);
    return [body?.detail, body?.message].find((text) => typeof text === "string");
  }

  // ---- Forms that are sent once

  const FORMS = "form[data-idempotence]";
  const BUSY = "idempotence-busy";
  const FAILED = "idempotence-failed";
  const LONGEST_BUSY = 30_000;

  /* Form → { busy, departed, resubmitting, buttons, focused, sent, timer }: `departed` once the
     browser sends it, `sent` the token that went out with it. */
  const states = new WeakMap();
  /* Token field → { token, at, lasts }: the token from this script, and its time. */
  const filled = new WeakMap();
  /* Token field → the promise of the token that is being fetched. */
  const filling = new WeakMap();

  /* A script may send a submit event to anything, a window too, which matches no selector. */
  function isMarked(target) {
    const matches = pure(target, "matches");
    return typeof matches === "function" && matches.call(target, FORMS);
  }

  function stateOf(form) {
    if (!states.has(form)) states.set(form, { buttons: [] });
    return states.get(form);
  }

  /* A form's buttons and inputs; form.elements leaves images out, and an input may hide it. */
  function controls(form) {
    const all = call(call(form, "getRootNode"), "querySelectorAll", "button, input");
    return [...all].filter((control) => control.form === form);
  }

  function tokenField(form) {
    const name = settings().tokenField;
    return controls(form).find((control) => control.name === name);
  }

  function lock(form) {
    const state = stateOf(form);
    state.busy = true;
    state.departed = false;
    state.focused = pure(document, "activeElement");
    call(form, "setAttribute", "aria-busy", "true");
    pure(form, "classList").add(BUSY);
    pure(form, "classList").remove(FAILED);
  }

  function disableButtons(form) {
    const state = stateOf(form);
    if (!state.busy) return;
    const buttons = controls(form).filter((control) => /^(submit|image)$/.test(control.type));
    state.buttons = buttons.filter((button) => !button.disabled);
    for (const button of state.buttons) {
      button.setAttribute("autocomplete", "off"); // or Firefox disables it after a reload, too
      button.disabled = true;
    }
  }

  function enableButtons(state) {
    for (const button of state.buttons) button.disabled = false;
    state.buttons = [];
  }

  function restore(form) {
    const state = stateOf(form);
    if (!state.busy) return;
    state.busy = false;
    clearTimeout(state.timer);
    enableButtons(state);
    call(form, "removeAttribute", "aria-busy");
    pure(form, "classList").remove(BUSY);
    // A button that is disabled loses the focus.
    if (pure(document, "activeElement") !== pure(document, "body") || !state.focused) return;
    pure(state.focused, "focus")?.call(state.focused);
  }

  /* Whether the page was loaded in a certain way: "reload", or by the buttons "back_forward". */
  function isLoadedBy(way) {
    return performance.getEntriesByType?.("navigation")[0]?.type === way;
  }

  /* Whether the token may be that of an earlier visit. On a reload, Firefox restores what a script
     has put into a hidden field, unless the page's source says autocomplete="off". */
  function mayBeRestored(field) {
    if (isLoadedBy("back_forward")) return true;
    return isLoadedBy("reload") && field.getAttribute("autocomplete") !== "off";
  }

  function needsToken(form, field) {
    if (!settings().tokenUrl) return false;
    if (!field.value) return true;
    // It was sent, with an unknown outcome: another token might run the operation twice.
    if (field.value === stateOf(form).sent) return false;
    const known = filled.get(field);
    if (known?.token === field.value) return isOld(known);
    const seconds = field.dataset.idempotenceExpiresIn;
    return mayBeRestored(field) || isOld({ at: performance.timeOrigin, lasts: seconds * 1000 });
  }

  /* By the wall clock, which also runs while a computer sleeps; a tenth is for the network. */
  function isOld({ at, lasts }) {
    return Date.now() - at > lasts * 0.9;
  }

  function fill(field) {
    if (!filling.has(field)) {
      filling.set(field, refill(field).finally(() => filling.delete(field)));
    }
    return filling.get(field);
  }

  async function refill(field) {
    const at = Date.now();
    const answer = await token(field.dataset.idempotencePurpose);
    field.value = answer.token;
    filled.set(field, { token: answer.token, at, lasts: answer.expires_in * 1000 });
  }

  /* Make a form ready for another submit, with a fresh token. */
  async function renew(form) {
    restore(form);
    const field = tokenField(form);
    if (!field || !settings().tokenUrl) return;
    stateOf(form).sent = undefined;
    field.value = ""; // the spent one is never sent again, even if fetching fails
    await fill(field);
  }

  function renewQuietly(form) {
    renew(form).catch(() => {}); // the field is empty, and is filled before it is sent
  }

  /* The browser collects the fields when the submit event has ended, the pressed button too:
     only then may buttons be disabled. */
  function depart(form, submitter) {
    const state = stateOf(form);
    state.departed = true;
    state.sent = tokenField(form)?.value;
    setTimeout(() => disableButtons(form));
    // No event follows an answer without a page (204, a download): release the form in time.
    state.timer = setTimeout(() => restore(form), LONGEST_BUSY);
    const target = submitter?.getAttribute("formtarget") || call(form, "getAttribute", "target");
    if (target && !/^_(self|parent|top)$/i.test(target)) {
      setTimeout(() => renewQuietly(form), 1000); // the answer goes elsewhere, this page stays
    }
  }

  async function fillAndSubmit(form, field, submitter) {
    const state = stateOf(form);
    disableButtons(form);
    try {
      await fill(field);
    } catch (error) {
      restore(form);
      pure(form, "classList").add(FAILED);
      const detail = { error };
      call(form, "dispatchEvent", new CustomEvent("idempotence:failed", { bubbles: true, detail }));
      return;
    }
    if (!state.busy) return; // restored by the page meanwhile
    enableButtons(state); // a disabled button would not be sent
    state.resubmitting = true;
    try {
      const pressed = submitter?.form === form ? submitter : null;
      call(form, "requestSubmit", pressed);
    } finally {
      // Still true: no submit event came, since the input is no longer valid.
      if (state.resubmitting) restore(form);
      state.resubmitting = false;
    }
  }

  /* First of all listeners: no other one sees a submit that is ignored. */
  function onSubmitFirst(event) {
    const form = event.target;
    const state = states.get(form);
    if (!state?.busy) return;
    event.stopImmediatePropagation();
    if (state.resubmitting) {
      state.resubmitting = false; // the page's own listeners have seen it the first time
      depart(form, event.submitter);
    } else {
      event.preventDefault();
    }
  }

  /* Last of all listeners: the page may have handled the submit, or found a mistake. */
  function onSubmitLast(event) {
    const form = event.target;
    const submitter = event.submitter;
    if (event.defaultPrevented || !isMarked(form)) return;
    const method = submitter?.getAttribute("formmethod") || call(form, "getAttribute", "method");
    if (/^dialog$/i.test(method)) return;
    lock(form);
    const field = tokenField(form);
    if (field && needsToken(form, field)) {
      event.preventDefault();
      fillAndSubmit(form, field, submitter);
    } else {
      depart(form, submitter);
    }
  }

  /* A page that the browser kept shows a form as it was left: busy, with its token spent. */
  function onPageShow({ persisted }) {
    if (!persisted && !isLoadedBy("back_forward")) return;
    for (const form of call(document, "querySelectorAll", FORMS)) {
      if (!persisted || stateOf(form).busy || stateOf(form).sent) renewQuietly(form);
    }
  }

  /* The submit was stopped, and the page stays. So does its token. */
  function onNavigateError() {
    for (const form of call(document, "querySelectorAll", FORMS)) {
      if (stateOf(form).departed) restore(form);
    }
  }

  if (globalThis.document) {
    addEventListener("submit", onSubmitFirst, true);
    addEventListener("submit", onSubmitLast);
    addEventListener("pageshow", onPageShow);
    // Where browsers lack it, it may be an element with that id.
    const { navigation } = globalThis;
    if (navigation instanceof EventTarget) {
      call(navigation, "addEventListener", "navigateerror", onNavigateError);
    }
  }

  globalThis.idempotence = { fetch: fetchOnce, token, renew, newKey };
  globalThis[LOADED] = globalThis.idempotence;
})();

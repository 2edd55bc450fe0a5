// What the script stands on in these tests: a realm of its own, timers that are written down and
// fire at once (those of half a minute when the test says so), and as much of a page as a form needs. Real browsers come in tests/proofs/browser.
import { readFileSync } from "node:fs";
import vm from "node:vm";

const file = new URL("../../flask_idempotence/web/static/idempotence.js", import.meta.url);
const source = readFileSync(process.env.SCRIPT_UNDER_TEST ?? file, "utf-8");
const script = new vm.Script(source);

/** Every name after a dot or alone in quotes in the script: more than it uses of a page. */
export const NAMES = [...new Set(source.match(/(?<=\.)[a-z]\w*|(?<=")[a-z]\w*(?=")/gi))];

const PLATFORM = { AbortController, AbortSignal, Blob, DOMException, FormData, ReadableStream };
Object.assign(PLATFORM, { Request, Response, URLSearchParams, crypto });

/** Run the script in a realm of its own; `answers` are what fetch gives, one after the other. */
export function stage({ answers = [], page, now = () => 1_000_000, random = 0.5 } = {}) {
  const sent = [];
  const waits = [];
  const late = new Map();
  const realm = vm.createContext({
    ...PLATFORM,
    setTimeout(callback, delay = 0) {
      if (delay !== 30_000) {
        if (delay) waits.push(delay);
        return setImmediate(callback);
      }
      const timer = {};
      late.set(timer, callback);
      return timer;
    },
    clearTimeout(timer) {
      if (!late.delete(timer)) clearImmediate(timer);
    },
    async fetch(request, options) {
      sent.push(request);
      const answer = answers.length > 1 ? answers.shift() : answers[0];
      const given = typeof answer === "function" ? await answer(request, options) : answer;
      if (given instanceof Error) throw given;
      return given.clone();
    },
    ...page?.globals,
  });
  vm.runInContext(`Math.random = () => ${random}`, realm);
  vm.runInContext("Date", realm).now = now;
  const load = () => script.runInContext(realm);
  load();
  const halfAMinute = () => late.forEach((callback) => callback());
  return { load, halfAMinute, realm, sent, waits, idempotence: realm.idempotence };
}

export function answer(status, headers = {}, body = "") {
  return new Response([204, 304].includes(status) ? null : body, { status, headers });
}

export function problem(slug, headers = {}, status = 409) {
  const body = JSON.stringify({ type: `urn:flask-idempotence:${slug}` });
  return answer(status, { "Content-Type": "application/problem+json", ...headers }, body);
}

export const dropped = () => new TypeError("Failed to fetch");

/** Wait until all that was begun is done: in turns of the event loop, since machines are slow. */
export async function settled() {
  for (let turn = 0; turn < 100; turn++) await new Promise(setImmediate);
}

class Target {
  listeners = [];

  addEventListener(type, listener, capture = false) {
    this.listeners.push({ type, listener, capture });
  }

  hear(event, capture) {
    for (const entry of this.listeners) {
      if (entry.type === event.type && entry.capture === capture && !event.stopped) {
        entry.listener(event);
      }
    }
  }
}

class Element extends Target {
  attributes = new Map();
  disabled = false;
  classes = new Set();
  constructor(attributes = {}) {
    super();
    for (const [name, value] of Object.entries(attributes)) this.setAttribute(name, value);
  }

  get classList() {
    const { classes } = this;
    return { add: (name) => classes.add(name), remove: (name) => classes.delete(name) };
  }

  getAttribute(name) {
    return this.attributes.get(name) ?? null;
  }

  setAttribute(name, value) {
    this.attributes.set(name, String(value));
  }

  removeAttribute(name) {
    this.attributes.delete(name);
  }

  matches(selector) {
    return selector === "form[data-idempotence]" && this.attributes.has("data-idempotence");
  }
}

class Control extends Element {
  constructor(form, { type = "text", name = "", value = "", ...data } = {}) {
    super();
    Object.assign(this, { form, type, name, value, dataset: data });
  }

  focus() {
    this.form.page.active = this;
  }
}

class Form extends Element {
  valid = true;
  events = [];

  constructor(page, attributes) {
    super({ method: "post", "data-idempotence": "", ...attributes });
    this.page = page;
  }

  getRootNode() {
    return new Root(this.page);
  }

  dispatchEvent(event) {
    this.events.push(event);
  }

  add(options) {
    const control = new Control(this, options);
    this.page.controls.push(control);
    return control;
  }

  requestSubmit(submitter = null) {
    if (this.valid) this.page.submit(this, submitter);
  }
}

class Root {
  constructor(page) {
    this.page = page;
  }

  querySelector() {
    return this.page.meta ? { content: JSON.stringify(this.page.meta) } : null;
  }

  querySelectorAll(selector) {
    return selector.startsWith("form") ? [this.page.form] : this.page.controls;
  }

  get body() {
    return this.page.body;
  }

  get activeElement() {
    return this.page.active;
  }
}

/** A page with one form, a text field and two buttons; `submissions` is what went to the server. */
export class Page {
  window = new Target();
  navigation = new Target();
  controls = [];
  submissions = [];

  constructor({ form = {}, field, meta, type = "navigate" } = {}) {
    this.form = new Form(this, form);
    this.form.add({ name: "note", value: "typed" });
    this.field = field && this.form.add({ type: "hidden", name: "idempotence_token", ...field });
    this.pay = this.form.add({ type: "submit", name: "action", value: "pay" });
    this.save = this.form.add({ type: "submit", name: "action", value: "save" });
    this.meta = meta;
    this.body = this.active = new Element();
    this.document = new Root(this);
    const absolute = (url) => new URL(url, "https://shop.test").href;
    this.globals = {
      document: this.document,
      navigation: this.navigation,
      performance: { timeOrigin: 1_000_000, getEntriesByType: () => [{ type }] },
      addEventListener: this.window.addEventListener.bind(this.window),
      EventTarget: Target,
      CustomEvent: class {
        constructor(name, options) {
          Object.assign(this, { type: name, ...options });
        }
      },
      Request: class extends Request {
        constructor(resource, options) {
          super(typeof resource === "string" ? absolute(resource) : resource, options);
        }
      },
    };
  }

  /** Press a button, or Enter: what a browser does, as the standard's form submission has it. */
  submit(form = this.form, submitter = null) {
    if (submitter?.disabled) return;
    const event = { type: "submit", target: form, submitter, defaultPrevented: false };
    event.preventDefault = () => (event.defaultPrevented = true);
    event.stopImmediatePropagation = () => (event.stopped = true);
    this.window.hear(event, true);
    form.hear(event, false);
    this.window.hear(event, false);
    if (event.defaultPrevented) return;
    const collected = this.controls.filter((control) => {
      const button = control.type === "submit";
      return control.form === form && !control.disabled && (!button || control === submitter);
    });
    this.submissions.push(Object.fromEntries(collected.map(({ name, value }) => [name, value])));
  }

  show(persisted) {
    this.window.hear({ type: "pageshow", persisted }, false);
  }
}

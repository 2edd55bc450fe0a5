// idempotence.js as a module: import { fetch } from "/_idempotence/idempotence.mjs".
import "./idempotence.js";

export const { fetch, token, renew, newKey } = globalThis[Symbol.for("flask-idempotence")];

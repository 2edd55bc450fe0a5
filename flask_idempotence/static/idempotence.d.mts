export * from "./idempotence.js";

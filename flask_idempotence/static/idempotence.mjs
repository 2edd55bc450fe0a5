import "./idempotence.js";

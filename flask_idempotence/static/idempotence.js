// The first version; the whole of it follows.
globalThis.idempotence ??= {};

/** Flask-Idempotence in the browser. Times are milliseconds unless a name says seconds. */

/** The argument of `onRetry`, which is called before a request is sent again. */
export interface Retry {
  /** How often the request was sent so far, 1 or more. */
  attempt: number;
  /** The wait before the next try. */
  delay: number;
  /** The answer that asks for another try; absent after a network error. */
  response?: Response;
  /** The reason for which there was no answer. */
  error?: unknown;
}

/** The options of the platform's `fetch`, and these. */
export interface FetchOptions extends RequestInit {
  /** The key of this logical request; by default a new one, kept over its retries. */
  key?: string | null;
  /** How often it is sent again, at most. Default: 6. */
  retries?: number;
  /** The wait before the first retry; it doubles from one to the next. Default: 500. */
  minDelay?: number;
  /** The longest wait. An answer that asks for a longer one is final. Default: 30000. */
  maxDelay?: number;
  /** How long each try waits for an answer; 0 for the browser's own limit. Default: 0. */
  timeout?: number;
  /** Called before each wait for the next try. */
  onRetry?: (retry: Retry) => void;
}

/** A one-time token, as the token route issues it. */
export interface Token {
  token: string;
  /** Its lifetime in seconds. */
  expires_in: number;
  /** The header that may carry it. */
  header: string;
  /** The form field that may carry it. */
  field: string;
}

/**
 * Send one logical request, under one idempotency key, until it is answered.
 *
 * It is sent again after a network error, after a refusal that passes (`key-in-progress`,
 * `lease-lost`, `store-unavailable`, by the header `Idempotence-Refusal`), after another 429, and
 * after another 503 with `Retry-After`. Every other answer is final. When the retries are used up, the last
 * answer is returned, or the last error thrown; `signal` ends it at any time, waits included.
 */
export function fetch(resource: RequestInfo | URL, options?: FetchOptions): Promise<Response>;

/** Get a one-time token from the server, for a purpose or for none. */
export function token(purpose?: string): Promise<Token>;

/** Make a form ready for another submit, with a fresh token. */
export function renew(form: HTMLFormElement): Promise<void>;

/** Return a new idempotency key: 128 random bits. */
export function newKey(): string;

export as namespace idempotence;

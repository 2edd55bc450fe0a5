/** Flask-Idempotence in the browser. Times are milliseconds unless a name says seconds. */

/** What is told before a request is sent again. */
export interface Retry {
  /** How often it has been sent, 1 or more. */
  attempt: number;
  /** How long it will be waited for now. */
  delay: number;
  /** The answer that asks for another try; absent where there was none. */
  response?: Response;
  /** Why there was no answer. */
  error?: unknown;
}

/** What the platform's own `fetch` takes, and these. */
export interface FetchOptions extends RequestInit {
  /** The key of this logical request; by default a new one, kept over its retries. */
  key?: string | null;
  /** How often it is sent again, at most. Default: 6. */
  retries?: number;
  /** The wait before the first retry; it doubles from one to the next. Default: 500. */
  minDelay?: number;
  /** The longest wait. An answer that asks for a longer one is final. Default: 30000. */
  maxDelay?: number;
  /** How long each try may go without an answer; 0 for as long as the browser waits. Default: 0. */
  timeout?: number;
  /** Called before each wait for the next try. */
  onRetry?: (retry: Retry) => void;
}

/** A one-time token, as the token route issues it. */
export interface Token {
  token: string;
  /** Its lifetime in seconds. */
  expires_in: number;
  /** The header in which it may travel. */
  header: string;
  /** The form field in which it may travel. */
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

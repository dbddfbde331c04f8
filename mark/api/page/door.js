// Asks the controller, with the key of this tab. An etag per path keeps the controller from sending an answer twice.

const KEY = "mark-key";
const held = new Map(); // path -> {etag, body}

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

export function useKey(key) {
  held.clear();
  if (key === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, key);
}

async function ask(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key === null ? {} : { authorization: `Bearer ${key}` }) };
  const answer = await fetch(`api/v1${path}`, { ...options, headers, signal: AbortSignal.timeout(10_000) });
  if (answer.ok || answer.status === 304) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, said.error ?? `${answer.status}`);
}

// Returns the controller's answer for `path`: the same object as the last time while nothing has changed.
export async function read(path) {
  const last = held.get(path);
  const answer = await ask(path, last ? { headers: { "if-none-match": last.etag } } : {});
  if (answer.status === 304) return last.body;
  const body = await answer.json();
  held.delete(path); // so that `set` puts the newest at the end
  held.set(path, { etag: answer.headers.get("etag"), body });
  if (held.size > 32) held.delete(held.keys().next().value);
  return body;
}

export const change = (method, path, body) =>
  ask(path, {
    method,
    ...(body ? { body: JSON.stringify(body), headers: { "content-type": "application/json" } } : {}),
  });

export const of = (service) => `/services/${encodeURIComponent(service)}`;

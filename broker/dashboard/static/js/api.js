// Questions to the broker. Every refusal becomes an ApiError with the broker's own sentence.

// Milliseconds; the broker is done with either before that.
const ANSWER = 30_000;
const GENERATION = 150_000;

export class ApiError extends Error {
  constructor(status, { code = "unknown", message, field = "" } = {}) {
    super(message || `The broker answered with status ${status}.`);
    Object.assign(this, { status, code, field });
  }

  /** Whether the broker has no such route: it is older than this page, or built without. */
  get missing() {
    return this.status === 501 || this.status === 405 || (this.status === 404 && !this.field);
  }
}

let whenSignedOut = () => {};

/** Name who is told once the broker no longer knows who asks. */
export function onSignedOut(action) {
  whenSignedOut = action;
}

async function send(path, options) {
  let answer;
  try {
    const signal = AbortSignal.timeout(ANSWER);
    answer = await fetch(`/api/v1/${path}`, { credentials: "same-origin", cache: "no-store", signal, ...options });
  } catch {
    throw new ApiError(0, {
      code: "unreachable",
      message: "The broker does not answer. This page tries again by itself.",
    });
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  if (answer.status === 401) whenSignedOut();
  throw new ApiError(answer.status, problem);
}

/** GET what is at a path, as JSON. */
export const get = async (path) => (await send(path)).json();

/** GET a text. */
export const getText = async (path) => (await send(path)).text();

const posting = (body, headers) => ({
  method: "POST",
  headers: { "content-type": "application/json", ...headers },
  body: JSON.stringify(body),
});

/** POST JSON; returns the answer, which may be empty, and its headers. */
export async function postWithHeaders(path, body = {}, headers = {}) {
  const answer = await send(path, posting(body, headers));
  const text = await answer.text();
  return { content: text ? JSON.parse(text) : {}, headers: answer.headers };
}

export const post = async (path, body) => (await postWithHeaders(path, body)).content;
export const remove = (path) => send(path, { method: "DELETE" });

/** POST JSON, and give each event of the answer to `take` as it comes, until `signal` says that it is enough. */
export async function postForEvents(path, body, headers, signal, take) {
  const deadline = AbortSignal.any([signal, AbortSignal.timeout(GENERATION)]);
  const answer = await send(path, { ...posting(body, headers), signal: deadline });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) take(JSON.parse(event.replace(/^data: /, "")));
  }
}

/** A path from parts that may hold any character. */
export const path = (...parts) => parts.map(encodeURIComponent).join("/");

// Talk to the server. Two kinds of failure: it said no (`Refused`), or nobody knows what became of it (`Unreachable`).

/** The server understood and declined; sending the same again is of no use. */
export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** No answer, or one that asks to come back: the same request with the same key may be sent again. */
export class Unreachable extends Error {
  constructor(message, { status = 0, after = 0 } = {}) {
    super(message);
    this.status = status;
    this.after = after; // seconds the server asked for
  }
  /** The server runs and does not know this browser (any more). */
  get locked() {
    return this.status === 401 || this.status === 403;
  }
}

const LATER = new Set([401, 403, 408, 425, 429]);

/** GET without a body, POST with one; the reply as an object. */
export async function call(path, body = undefined, { seconds = 15 } = {}) {
  const gone = new AbortController();
  const timer = setTimeout(() => gone.abort(), seconds * 1000);
  const options = { signal: gone.signal, cache: "no-store", credentials: "same-origin", headers: { Accept: "application/json" } };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  try {
    const response = await fetch(path, options);
    const reply = await response.json().catch(() => null);
    return checked(response, reply);
  } catch (error) {
    if (error instanceof Refused || error instanceof Unreachable) throw error;
    throw new Unreachable(gone.signal.aborted ? "the server took too long" : "the server cannot be reached");
  } finally {
    clearTimeout(timer);
  }
}

function checked(response, reply) {
  const { status } = response;
  if (response.ok && reply !== null && typeof reply === "object") return reply;
  const message = (reply && typeof reply.error === "string" && reply.error) || `the server answered with ${status}`;
  if (status >= 400 && status < 500 && !LATER.has(status)) throw new Refused(message, status);
  throw new Unreachable(message, { status, after: Number(response.headers.get("Retry-After")) || 0 });
}

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
  /** A server is there and takes nothing from this page as it is: no token, a wrong name, another run. */
  get shut() {
    return SHUT.has(this.status);
  }
}

const SHUT = new Set([401, 403, 421]);
const LATER = new Set([...SHUT, 408, 425, 429]);

let ours = null; // the run that this page was opened for

/** Say in each request from now on whose page this is: the server of another run may take the place of ours. */
export function belongTo(run) {
  ours = run;
}

function request(body) {
  const options = { cache: "no-store", credentials: "same-origin", headers: { Accept: "application/json" } };
  if (ours !== null) options.headers["UBP2-Run"] = ours;
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  return options;
}

/** POST from a page that may be gone before the reply, which nobody reads. */
export function tell(path, body) {
  fetch(path, { ...request(body), keepalive: true }).catch(() => {});
}

/** GET without a body, POST with one; the reply as an object. */
export async function call(path, body = undefined, { seconds = 15 } = {}) {
  const gone = new AbortController();
  const timer = setTimeout(() => gone.abort(), seconds * 1000);
  try {
    const response = await fetch(path, { ...request(body), signal: gone.signal });
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
  const said = typeof reply?.error === "string" && reply.error; // else it was no server of ours: a proxy, another program
  if (said && status >= 400 && status < 500 && !LATER.has(status)) throw new Refused(said, status);
  throw new Unreachable(said || `the server answered with ${status}`, { status, after: Number(response.headers.get("Retry-After")) || 0 });
}

// What the server has handed to the annotator: the pair to judge, and the one behind it. It is asked again when an
// answer is stored, and now and then: while clips are drawn, while there is no pair, and to say that somebody is here.

import { call, tell } from "./api.js";

export class Hand extends EventTarget {
  pair = null;
  ahead = null;
  why = null; // there is no pair, in the server's words
  trouble = null; // of the last request
  #serial = 0;
  #answered = new Map(); // pair id -> when, so that a reply from before the answer does not bring the pair back
  #asking = false;
  #again = false;
  #sure = true; // since the pair came to the front, the server has said that it is ours
  #timer = null;
  #quiet = 0; // replies without a pair, and failures, in a row: to ask less often
  #failures = 0;

  /** `looking` says whether somebody looks at the pair: once the server has said that it is ours, it stays. */
  constructor(outbox, annotator, looking) {
    super();
    Object.assign(this, { outbox, annotator, looking });
    document.addEventListener("visibilitychange", () => document.hidden ? this.#goAway() : this.refresh());
    addEventListener("pageshow", (event) => event.persisted && this.refresh());
    addEventListener("pagehide", () => { this.#goAway(); this.#leave(); });
  }

  /** Start anew under another name. */
  become(annotator) {
    this.#leave();
    this.annotator = annotator;
    this.pair = this.ahead = null;
    this.#serial += 1;
    this.refresh();
  }

  /** Nobody looks for a while, and somebody else may have the pair after that. */
  #goAway() {
    this.#sure = false;
  }

  /** The page is closed, or somebody else's: others need not wait for this pair. */
  #leave() {
    if (this.pair) tell("/api/leave", { annotator: this.annotator });
  }

  /** The pair was answered or skipped: the one behind it comes to the front, which somebody else may have by now. */
  done() {
    this.#answered.set(this.pair.id, ++this.#serial);
    [this.pair, this.ahead, this.why] = [this.ahead, null, null];
    this.#sure = false;
  }

  /** A pair comes back to the front, and what was there goes behind it. */
  putBack(pair) {
    this.#answered.delete(pair.id);
    if (this.pair && this.pair.id !== pair.id) this.ahead = this.pair;
    this.pair = pair;
    this.#sure = true;
  }

  forget(id) {
    this.#answered.delete(id);
  }

  /** Whether nothing was answered after this pair. */
  isLast(id) {
    return this.#answered.get(id) === this.#serial;
  }

  /** Ask the server what is next, now; "changed" tells of the reply. */
  async refresh() {
    clearTimeout(this.#timer);
    if (this.#asking) { this.#again = true; return; }
    this.#again = false;
    const waits = this.outbox.unsent.some((act) => act.body.annotator === this.annotator);
    if (waits) return this.#later(); // the reply would not know of what is not stored; storing it asks again
    this.#asking = true;
    const [serial, annotator] = [this.#serial, this.annotator];
    let reply = null;
    try {
      reply = await call("/api/next", { annotator });
      this.trouble = null;
      this.#failures = 0;
    } catch (error) {
      this.trouble = error;
      this.#failures += 1;
    }
    this.#asking = false;
    if (annotator !== this.annotator || (reply && this.#again)) return this.refresh();
    if (reply) this.#take(reply, serial);
    this.#later();
    this.dispatchEvent(new CustomEvent("changed", { detail: reply }));
  }

  /** Ask again after so many ms instead of when it would be due. */
  refreshIn(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), ms);
  }

  #take(reply, serial) {
    const unsent = new Set(this.outbox.unsent.map((act) => act.body.pair));
    const open = [reply.pair, reply.ahead].filter((pair) =>
      pair && !unsent.has(pair.id) && !((this.#answered.get(pair.id) ?? 0) > serial));
    this.why = reply.why;
    const ours = this.#sure || open.some((pair) => pair.id === this.pair?.id);
    if (ours && this.looking()) this.ahead = open.find((pair) => pair.id !== this.pair?.id) ?? null;
    else [this.pair = null, this.ahead = null] = open;
    this.#sure ||= serial === this.#serial; // a reply from before the answer knows only what was behind the pair
    this.#quiet = this.pair ? 0 : this.#quiet + 1;
  }

  #later() {
    if (this.trouble) this.refreshIn(Math.min(10_000, 800 * 1.6 ** Math.min(8, this.#failures)));
    else if (!this.pair) this.refreshIn(this.why === "the budget is spent" ? 15_000 : Math.min(5000, 1000 + 500 * this.#quiet));
    else if (!drawn(this.pair)) this.refreshIn(800);
    else if (document.hidden) return; // where nobody looks, the pair may go to somebody else
    else this.refreshIn(!this.ahead || !drawn(this.ahead) ? 2500 : 12_000);
  }
}

/** The side of a pair that cannot be shown, if one cannot. */
export const failedSide = (pair) => ["left", "right"].find((side) => pair[side].failed);

/** Whether nothing of the pair is still being drawn. */
export const drawn = (pair) => Boolean(failedSide(pair)) || (pair.left.ready && pair.right.ready);

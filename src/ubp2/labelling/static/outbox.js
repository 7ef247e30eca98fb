// What the annotator did stays in this browser until the server says that it is stored.
//
// Every act has a key of its own, so that sending it twice stores it once: after a lost reply, a restart of the server,
// a reload, or from a second tab. Each lies under its own name in localStorage; tabs never write over each other.

import { call, Refused, Unreachable } from "./api.js";
import { randomKey, shelf } from "./dom.js";

const ADOPT_AFTER = 10_000; // ms until another tab's act is sent from here: that tab may be gone
const LONGEST = 20_000; // ms between two tries

export class Outbox extends EventTarget {
  #run;
  #tab;
  #busy = false;
  #wake = null;
  #last = 0;
  #trouble = null;
  #waitUntil = 0;

  constructor(run, tab) {
    super();
    this.#run = run;
    this.#tab = tab;
    addEventListener("online", () => this.hurry());
    addEventListener("storage", (event) => event.key?.startsWith(this.#prefix) && this.#changed());
    setInterval(() => this.pump(), ADOPT_AFTER);
  }

  get #prefix() {
    return `ubp2.outbox.${this.#run}.`;
  }

  /** Acts that no server has acknowledged, oldest first, of every tab. */
  get unsent() {
    return shelf.keys().filter((name) => name.startsWith(this.#prefix)).sort().flatMap((name) => {
      try {
        const act = JSON.parse(shelf.get(name)); // null: another tab has just removed it
        return act ? [{ name, ...act }] : [];
      } catch { return []; }
    });
  }

  /** "saved", "saving", "offline" or "shut", with what the page can say about it. */
  get state() {
    const count = this.unsent.length;
    const trouble = count ? this.#trouble : null;
    if (!trouble) return { name: count ? "saving" : "saved", count, trouble, until: 0 };
    return { name: trouble.shut ? "shut" : "offline", count, trouble, until: this.#waitUntil };
  }

  /** Keep an act and send it; the page may forget about it. */
  add(path, body) {
    this.#last = Math.max(Date.now(), this.#last + 1); // two acts in one millisecond keep their order
    const act = { path, body: { ...body, key: randomKey() }, made: this.#last, tab: this.#tab };
    shelf.set(`${this.#prefix}${act.made}.${act.body.key}`, JSON.stringify(act));
    this.#changed();
    this.hurry();
    return act;
  }

  /** Try at once instead of at the end of the pause. */
  hurry() {
    this.#wake?.();
    this.pump();
  }

  /** Send what waits, in order, one at a time; comes back when nothing of ours is left. */
  async pump() {
    if (this.#busy) return;
    this.#busy = true;
    let tries = 0;
    try {
      for (let act = this.#first(); act; act = this.#first()) {
        try {
          this.#changed();
          const reply = await this.#send(act);
          this.#settle(act, "stored", { act, reply });
          tries = 0;
        } catch (error) {
          if (error instanceof Refused) {
            this.#settle(act, "refused", { act, error });
          } else if (error instanceof Unreachable) {
            await this.#pause(error, tries++);
          } else throw error;
        }
      }
    } finally {
      this.#busy = false;
      this.#changed();
    }
  }

  /** What is sent next: an undo is of what was said before it, so what other tabs have not sent yet goes first. */
  #first() {
    const now = Date.now();
    const acts = this.unsent;
    const own = acts.find((act) => act.tab === this.#tab || now - act.made > ADOPT_AFTER);
    return own && acts.find((act) => act.body.annotator === own.body.annotator);
  }

  async #send(act) {
    const reply = await call(act.path, act.body);
    const done = act.path === "/api/undo" ? "pair" in reply : reply.stored === true;
    if (!done) throw new Unreachable("the server did not say that the answer is stored");
    return reply;
  }

  #settle(act, kind, detail) {
    this.#trouble = null;
    shelf.remove(act.name);
    this.dispatchEvent(new CustomEvent(kind, { detail }));
    this.#changed();
  }

  async #pause(error, tries) {
    const least = Math.max(error.after * 1000, error.shut ? 5000 : 0);
    const wait = Math.max(least, Math.min(LONGEST, 400 * 2 ** tries) * (0.75 + 0.5 * Math.random()));
    this.#trouble = error;
    this.#waitUntil = Date.now() + wait;
    this.#changed();
    await new Promise((done) => {
      const timer = setTimeout(done, wait);
      this.#wake = () => { clearTimeout(timer); done(); };
    });
    this.#wake = null;
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

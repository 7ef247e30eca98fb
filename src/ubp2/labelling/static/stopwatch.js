// How long a pair was in sight: time in another tab, with the window put away or in a dialog is not counted. A window that
// lies open beside another program counts, because people watch clips in one that does not have the keyboard.

const BEAT = 50; // ms

export class Stopwatch {
  #total = 0;
  #before = performance.now();

  /** `counts` says whether the pair is what the page shows. */
  constructor(counts) {
    this.counts = counts;
    setInterval(() => this.#beat(), BEAT);
    document.addEventListener("visibilitychange", () => this.#beat());
  }

  restart() {
    this.#total = 0;
    this.#before = performance.now();
  }

  /** Seconds so far, to the hundredth. */
  read() {
    this.#beat();
    return Math.round(this.#total / 10) / 100;
  }

  #beat() {
    const now = performance.now();
    const passed = now - this.#before;
    this.#before = now;
    // A long gap is a computer asleep or a page put aside; timers of a page that is seen are never that late.
    if (passed < 2000 && this.counts() && !document.hidden && !document.querySelector("dialog[open]")) this.#total += passed;
  }
}

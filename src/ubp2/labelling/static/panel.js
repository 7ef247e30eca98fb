// What surrounds the clips: the progress of the run, waiting in words, the switch for the model's view.

import { $, say, shelf } from "./dom.js";
import { budget, phase, policy, shares, trainer } from "./words.js";

const AGREEMENT = "ubp2.agreement";

export class Panel {
  #title = document.title;
  #waited = false;

  constructor(session) {
    this.allowed = Boolean(session.show_agreement);
    $("agreement-switch").hidden = !this.allowed;
    $("agreement").checked = shelf.get(AGREEMENT) !== "no";
    $("agreement").addEventListener("change", () => shelf.set(AGREEMENT, $("agreement").checked ? "yes" : "no"));
    document.addEventListener("visibilitychange", () => document.hidden || this.#resetTitle());
  }

  /** Whether the model's view is told after an answer. */
  get tells() {
    return this.allowed && $("agreement").checked;
  }

  progress(progress) {
    const { text, part } = budget(progress);
    say($("budget-text"), text);
    $("budget").value = part;
    say($("mine"), shares(progress));
    say($("phase"), phase(progress));
    say($("trainer"), trainer(progress));
    say($("policy"), policy(progress));
  }

  wait(title, text, act) {
    this.#waited = true;
    say($("waiting-title"), title);
    say($("waiting-text"), text);
    say($("waiting-act"), act);
    $("waiting-act").hidden = !act;
  }

  /** After waiting, a page that nobody looks at says in its title that there is a pair. */
  announcePair() {
    if (this.#waited && document.hidden) document.title = `● New pair · ${this.#title}`;
    this.#waited = false;
  }

  #resetTitle() {
    document.title = this.#title;
  }
}

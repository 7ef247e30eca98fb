// Which pair is shown and what is answered. The pair ahead is loaded while this one is looked at; an answer goes to the
// outbox and the next pair stands at once. The server decides what comes next and is asked again when it has stored.

import { call, Refused } from "./api.js";
import { $, say } from "./dom.js";
import { askProblem } from "./dialogs.js";
import { Panel } from "./panel.js";
import { Stopwatch } from "./stopwatch.js";
import { Controls } from "./controls.js";
import { afterAnswer, CHOICES, sentence, waitingFor } from "./words.js";

const SETTLE = 400; // ms during which a new pair takes no answer: the second half of a double click is none

export class Labelling {
  seen = true;
  #pair = null;
  #ahead = null;
  #why = null;
  #progress = {};
  #stage = "waiting";
  #serial = 0;
  #answered = new Map(); // pair id -> when, so that a reply from before the answer does not bring the pair back
  #asking = false;
  #timer = null;
  #quiet = 0; // polls without a pair, to ask less often
  #trouble = null;
  #undoing = false;
  #loading = null; // pair/camera
  #late = false; // the server was away when clips were due
  #bad = null; // {key, side, message} of the pair whose clips do not play
  #again = false;
  #shownAt = 0;
  #watch = new Stopwatch(() => this.seen && this.#stage === "pair");

  constructor({ session, keys, outbox, annotator, toast }) {
    Object.assign(this, { session, outbox, annotator, toast });
    this.controls = new Controls(session, keys, () => this.#present(true));
    this.panel = new Panel(session);
    this.player = this.controls.player;
    outbox.addEventListener("stored", ({ detail }) => this.#stored(detail));
    outbox.addEventListener("refused", ({ detail }) => this.#refused(detail));
    outbox.addEventListener("change", () => this.#stage === "waiting" && this.#present());
    addEventListener("storage", (event) => this.#elsewhere(event));
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
    for (const button of document.querySelectorAll(".answer")) {
      button.addEventListener("click", (event) => {
        if (event.detail > 0) button.blur(); // after the mouse, the space bar is for pausing
        if (event.detail < 2) this.choose(button.dataset.choice);
      });
    }
    $("undo").addEventListener("click", (event) => event.detail < 2 && this.undo());
    $("problem").addEventListener("click", () => this.#report());
    $("waiting-act").addEventListener("click", () => this.#waitingAct?.());
  }

  start() {
    this.refresh();
  }

  /** Go on under another name: what was on the screen was somebody else's. */
  become(name) {
    if (name === this.annotator) return;
    this.annotator = name;
    this.#pair = this.#ahead = null;
    this.#serial += 1;
    this.player.hide();
    say($("last"), "");
    this.#present();
    this.refresh();
  }

  /** Whether the label view is the one on the screen. */
  setSeen(seen) {
    this.seen = seen;
    if (!seen) this.player.pause();
    else if (this.#stage === "pair" && !this.controls.still) this.player.play();
  }

  act(action) {
    if (action in CHOICES) this.choose(action);
    else if (action === "undo") this.undo();
    else this.controls.act(action);
  }

  choose(choice) {
    if (this.#stage !== "pair" || this.#undoing || performance.now() - this.#shownAt < SETTLE) return;
    const pair = this.#pair;
    const seconds = this.#watch.read();
    this.#answered.set(pair.id, ++this.#serial);
    this.controls.flash(choice);
    say($("last"), afterAnswer(choice, null));
    this.#advance();
    this.outbox.add("/api/answer", { annotator: this.annotator, pair: pair.id, choice, seconds });
  }

  undo() {
    if (this.#undoing) return;
    this.#undoing = true;
    this.outbox.add("/api/undo", { annotator: this.annotator });
    this.#present();
  }

  /** Ask the server what is next, now. */
  async refresh() {
    clearTimeout(this.#timer);
    if (this.#asking) { this.#again = true; return; }
    this.#again = false;
    if (this.#mineUnsent().length) return this.#later(); // the reply would not know of these; storing them asks again
    this.#asking = true;
    const [serial, annotator] = [this.#serial, this.annotator];
    let reply = null;
    try {
      reply = await call("/api/next", { annotator });
      this.#trouble = null;
    } catch (error) {
      this.#trouble = error;
    }
    this.#asking = false;
    if (annotator !== this.annotator) return this.refresh();
    if (reply && this.#again) return this.refresh();
    if (reply) this.#take(reply, serial);
    this.#present();
    this.#later();
  }

  #mineUnsent() {
    return this.outbox.unsent.filter((act) => act.body.annotator === this.annotator);
  }

  #take(reply, serial) {
    this.#setProgress(reply.progress);
    this.#why = reply.why;
    const unsent = new Set(this.outbox.unsent.map((act) => act.body.pair));
    const open = [reply.pair, reply.ahead].filter((pair) =>
      pair && !unsent.has(pair.id) && !((this.#answered.get(pair.id) ?? 0) > serial));
    if (this.#stage === "pair" || this.#undoing) { // what somebody looks at is not taken away
      this.#ahead = open.find((pair) => pair.id !== this.#pair?.id) ?? null;
    } else {
      [this.#pair = null, this.#ahead = null] = open;
    }
    this.#quiet = this.#pair ? 0 : this.#quiet + 1;
  }

  #later() {
    clearTimeout(this.#timer);
    let wait = 12_000; // also tells the server that somebody still looks at the pair
    if (this.#trouble) wait = Math.min(10_000, 1000 * 1.6 ** Math.min(8, (this.#trouble.tries = (this.#trouble.tries ?? 0) + 1)));
    else if (!this.#pair) wait = this.#why === "the budget is spent" ? 15_000 : Math.min(5000, 1000 + 500 * this.#quiet);
    else if (!drawn(this.#pair)) wait = 800;
    else if (!this.#ahead || !drawn(this.#ahead)) wait = 2500;
    else if (document.hidden) return; // nobody looks: the pair may go to somebody else
    this.#timer = setTimeout(() => this.refresh(), wait);
  }

  #advance() {
    [this.#pair, this.#ahead] = [this.#ahead, null];
    this.#stage = "waiting";
    this.#why = null;
    this.#present();
  }

  /** Bring the screen in line with what is known. */
  async #present(again = false) {
    const pair = this.#pair;
    if (this.#undoing) return this.#wait("Taking your last answer back", this.outbox.state.name === "offline" ? "The server does not answer; this happens as soon as it does." : "");
    if (!pair) return this.#waitForPair();
    const failed = ["left", "right"].find((side) => pair[side].failed);
    if (failed) return this.#broken(failed, pair[failed].failed);
    if (!drawn(pair)) return this.#wait(...waitingFor("rendering", this.#progress));
    const camera = this.controls.cameraFor(pair);
    const key = `${pair.id}/${camera}`;
    if (this.#bad?.key === key) return this.#broken(this.#bad.side, this.#bad.message);
    if (this.#stage === "pair" && !again) return this.#prepare();
    if (this.#loading === key) return;
    this.#loading = key;
    if (!again && !this.#late) this.#wait("Loading the clips", "");
    try {
      const well = await this.player.show(pair, camera, { keep: again });
      if (well && this.#pair?.id === pair.id && !this.#undoing) this.#shown(again);
    } catch (error) {
      if (this.#pair?.id === pair.id) this.#noClip(error, key, again);
    } finally {
      if (this.#loading === key) this.#loading = null;
    }
  }

  /** A clip did not load: later again where the server was away, another camera where there is one, or a skip. */
  #noClip(error, key, again) {
    if (error.passing) {
      this.#late = true;
      this.#wait("The clips do not come", `${sentence(error.message)} Trying again.`);
      setTimeout(() => this.#present(), 2000);
    } else if (again && this.controls.firstCamera()) {
      this.toast(`This camera does not work here: ${sentence(error.message)}`);
      this.#present(true);
    } else {
      this.#bad = { key, side: error.side, message: error.message };
      this.#broken(error.side, error.message);
    }
  }

  #shown(again) {
    this.#late = false;
    this.#setStage("pair");
    this.controls.fit();
    if (again) return;
    this.#shownAt = performance.now();
    const { id } = this.#pair;
    setTimeout(() => { if (this.#stage === "pair" && this.#pair?.id === id) $("answers").dataset.open = id; }, SETTLE);
    this.#watch.restart();
    if (this.seen && !this.controls.still) this.player.replay();
    this.panel.announcePair();
    this.#prepare();
  }

  #prepare() {
    if (this.#ahead && drawn(this.#ahead) && !failure(this.#ahead)) this.player.prepare(this.#ahead, this.controls.cameraFor(this.#ahead));
  }

  #waitForPair() {
    const { name, count } = this.outbox.state;
    if (name === "offline") return this.#wait("The server does not answer", `${count === 1 ? "Your answer is" : `${count} answers are`} kept in this browser and sent when it is back. You can leave this page open.`);
    if (this.#trouble?.locked || name === "locked") return this.#wait("The server does not know this browser", "Open the whole link that the terminal printed, with its token. Answers are kept here.");
    if (this.#trouble instanceof Refused) return this.#wait("The server said no", sentence(this.#trouble.message), "Change the name", () => $("who").click());
    if (this.#trouble) return this.#wait("The server does not answer", `${sentence(this.#trouble.message)} Trying again.`, "Try now", () => this.refresh());
    this.#wait(...waitingFor(this.#why, this.#progress));
  }

  #wait(title, text, act = "", does = null) {
    this.#setStage("waiting");
    this.panel.wait(title, text, act);
    this.#waitingAct = does;
  }

  #broken(side, why) {
    this.#wait(`The ${side} clip does not work`, `${sentence(why)} Skipping the pair counts as no answer.`, "Skip this pair", () => this.#skip(`${side} clip: ${why}`));
    $("waiting").dataset.kind = "broken";
  }

  #setStage(name) {
    this.#stage = name;
    $("stage").dataset.state = name;
    delete $("waiting").dataset.kind;
    if (name === "waiting") {
      this.player.hide();
      delete $("answers").dataset.open; // which pair takes an answer, for programs that use the page
    }
    this.controls.enable(name === "pair");
  }

  async #report() {
    const pair = this.#pair;
    const reason = pair && (await askProblem());
    if (reason && this.#pair?.id === pair.id) this.#skip(reason);
  }

  #skip(reason) {
    const pair = this.#pair;
    this.#answered.set(pair.id, ++this.#serial);
    say($("last"), "The pair was skipped.");
    this.#advance();
    this.outbox.add("/api/broken", { annotator: this.annotator, pair: pair.id, reason: reason.slice(0, 300) });
  }

  #stored({ act, reply }) {
    this.#setProgress(reply.progress);
    if (act.body.annotator === this.annotator) {
      if (act.path === "/api/answer" && this.#answered.get(act.body.pair) === this.#serial) {
        say($("last"), afterAnswer(act.body.choice, this.panel.tells ? reply.agreement : null));
      }
      if (act.path === "/api/undo") this.#takenBack(reply.pair);
    }
    this.refresh();
  }

  #takenBack(pair) {
    this.#undoing = false;
    if (!pair) {
      this.toast("There is no answer of yours to take back.");
      this.#stage = "waiting";
      return this.#present();
    }
    this.#answered.delete(pair.id);
    if (this.#pair && this.#pair.id !== pair.id) this.#ahead = this.#pair;
    this.#pair = pair;
    this.#stage = "waiting";
    say($("last"), "Your last answer was taken back: choose again.");
    this.#present();
  }

  #refused({ act, error }) {
    if (act.path === "/api/undo") { this.#undoing = false; this.#stage = "waiting"; }
    this.#answered.delete(act.body.pair);
    this.toast(`${act.path === "/api/undo" ? "Not taken back" : "Not counted"}: ${sentence(error.message)}`, 9);
    if (act.path !== "/api/undo") say($("last"), "");
    this.#present();
    this.refresh();
  }

  /** Another tab answered the pair that stands here. */
  #elsewhere(event) {
    let act = null;
    try { act = JSON.parse(event.newValue ?? "null"); } catch { return; }
    if (!event.key?.startsWith("ubp2.outbox.") || !this.#pair || act?.body?.pair !== this.#pair.id) return;
    if (act.body.annotator !== this.annotator) return;
    this.#answered.set(this.#pair.id, ++this.#serial);
    say($("last"), "This pair was answered in another tab.");
    this.#advance();
    this.refresh();
  }

  #setProgress(progress) {
    if (!progress) return;
    this.#progress = progress;
    this.panel.progress(progress);
  }

  #waitingAct = null;
}

const drawn = (pair) => Boolean(failure(pair)) || (pair.left.ready && pair.right.ready);
const failure = (pair) => pair.left.failed || pair.right.failed;


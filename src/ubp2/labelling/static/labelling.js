// The pair on the screen and what is answered. The pair ahead is loaded while this one is looked at; an answer goes to
// the outbox and the next pair stands at once. The server decides what comes next and is asked when it has stored.

import { $, say } from "./dom.js";
import { askProblem } from "./dialogs.js";
import { Controls } from "./controls.js";
import { drawn, failedSide, Hand } from "./hand.js";
import { Panel } from "./panel.js";
import { Stopwatch } from "./stopwatch.js";
import { afterAnswer, CHOICES, noPair, sentence, waitingFor } from "./words.js";

const SETTLE = 400; // ms during which a new pair takes no answer: the second half of a double click is none

export class Labelling {
  seen = true;
  #stage = "waiting"; // or "pair"
  #undoing = false;
  #loading = null; // pair/camera
  #late = false; // the server was away when clips were due
  #bad = null; // {key, side, message} of the pair whose clips do not play
  #shownAt = 0;
  #waitingAct = null;
  #watch = new Stopwatch(() => this.seen && this.#stage === "pair");

  constructor({ session, outbox, annotator, toast }) {
    Object.assign(this, { outbox, toast });
    this.controls = new Controls(session, () => this.#present(true));
    this.panel = new Panel(session);
    this.player = this.controls.player;
    this.hand = new Hand(outbox, annotator, () => this.#stage === "pair" || this.#undoing);
    this.hand.addEventListener("changed", ({ detail }) => { this.#setProgress(detail?.progress); this.#present(); });
    outbox.addEventListener("stored", ({ detail }) => this.#stored(detail));
    outbox.addEventListener("refused", ({ detail }) => this.#refused(detail));
    outbox.addEventListener("change", () => (this.#stage === "waiting" || this.#displaced) && this.#present());
    addEventListener("storage", (event) => this.#elsewhere(event));
    this.#wire();
  }

  /** Whether the server of another run has taken the place of ours: nothing of what is on the screen is its own. */
  get #displaced() {
    return [this.hand.trouble, this.outbox.state.trouble].some((trouble) => trouble?.status === 421);
  }

  get annotator() {
    return this.hand.annotator;
  }

  #wire() {
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

  refresh() {
    this.hand.refresh();
  }

  /** Go on under another name: what was on the screen was somebody else's. */
  become(name) {
    if (name === this.annotator) return;
    this.#undoing = false;
    say($("last"), "");
    this.hand.become(name);
    this.#present();
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
    this.controls.flash(choice);
    this.#give("/api/answer", { choice, seconds: this.#watch.read() }, afterAnswer(choice, null));
  }

  undo() {
    if (this.#undoing) return;
    this.#undoing = true;
    this.outbox.add("/api/undo", { annotator: this.annotator });
    this.#present();
  }

  #skip(reason) {
    this.#give("/api/broken", { reason: reason.slice(0, 300) }, "The pair was skipped.");
  }

  /** Keep what was said of the pair on the screen, and go on to the next. */
  #give(path, body, words) {
    this.outbox.add(path, { annotator: this.annotator, pair: this.hand.pair.id, ...body });
    say($("last"), words);
    this.#advance();
  }

  #advance() {
    this.hand.done();
    this.#stage = "waiting";
    this.#present();
  }

  /** Bring the screen in line with what is known; `again`: the same pair from another camera. */
  async #present(again = false) {
    const { pair } = this.hand;
    if (this.#displaced) return this.#waitForPair();
    if (this.#undoing) return this.#wait("Taking your last answer back", this.outbox.state.name === "offline" ? "The server does not answer; it is done when it does." : "");
    if (!pair) return this.#waitForPair();
    const failed = failedSide(pair);
    if (failed) return this.#broken(failed, pair[failed].failed);
    if (!drawn(pair)) return this.#wait(...waitingFor("rendering"));
    const camera = this.controls.cameraFor(pair);
    const key = `${pair.id}/${camera}`;
    if (this.#bad?.key === key) return this.#broken(this.#bad.side, this.#bad.message);
    const stands = this.#stage === "pair" && this.player.pair?.id === pair.id; // else it is shown for the first time
    if (stands && !again) return this.#prepare();
    if (this.#loading === key) return;
    this.#loading = key;
    const keep = again && stands;
    if (!keep && !this.#late) this.#wait("Loading the clips", "");
    try {
      const well = await this.player.show(pair, camera, { keep });
      if (well && this.hand.pair?.id === pair.id && !this.#undoing) this.#shown(keep);
    } catch (error) {
      if (this.hand.pair?.id === pair.id) this.#noClip(error, key, again);
    } finally {
      if (this.#loading === key) this.#loading = null;
    }
  }

  /** `stood`: the pair was on the screen before, from another camera. */
  #shown(stood) {
    this.#late = false;
    this.#setStage("pair");
    this.controls.fit();
    if (stood) return;
    const now = this.#shownAt = performance.now();
    const { id } = this.hand.pair;
    setTimeout(() => { if (this.#stage === "pair" && this.#shownAt === now) $("answers").dataset.open = id; }, SETTLE);
    this.#watch.restart();
    if (this.seen && !this.controls.still) this.player.replay();
    this.panel.announcePair();
    this.#prepare();
  }

  #prepare() {
    const { ahead } = this.hand;
    if (ahead && drawn(ahead) && !failedSide(ahead)) this.player.prepare(ahead, this.controls.cameraFor(ahead));
  }

  /** A clip did not load: later again where the server was away, another camera where there is one, or a skip. */
  #noClip(error, key, again) {
    if (error.passing) {
      this.#late = true;
      this.#wait("The clips do not come", `${sentence(error.message)} Trying again.`);
      this.hand.refreshIn(2000); // the server says anew where the clips are
    } else if (again && this.controls.firstCamera()) {
      this.toast(`This camera does not work here: ${sentence(error.message)}`);
      this.#present(true);
    } else {
      this.#bad = { key, side: error.side, message: error.message };
      this.#broken(error.side, error.message);
    }
  }

  #waitForPair() {
    const { trouble, why } = this.hand;
    const acts = { name: ["Change the name", () => $("who").click()], again: ["Try now", () => this.refresh()], reload: ["Reload", () => location.reload()] };
    const { words, act } = noPair({ saving: this.outbox.state, trouble, why });
    this.#wait(...words, ...(acts[act] ?? []));
  }

  #wait(title, text, act = "", does = null) {
    this.#setStage("waiting");
    this.panel.wait(title, text, act);
    this.#waitingAct = does;
  }

  #broken(side, why) {
    const words = `${sentence(why)} Skipping the pair counts as no answer.`;
    this.#wait(`The ${side} clip does not work`, words, "Skip this pair", () => this.#skip(`${side} clip: ${why}`));
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
    const { pair } = this.hand;
    const reason = pair && (await askProblem());
    if (reason && this.hand.pair?.id === pair.id) this.#skip(reason);
  }

  #stored({ act, reply }) {
    this.#setProgress(reply.progress);
    if (act.body.annotator === this.annotator) {
      const told = this.panel.tells ? reply.agreement : null;
      if (act.path === "/api/answer" && this.hand.isLast(act.body.pair)) say($("last"), afterAnswer(act.body.choice, told));
      if (act.path === "/api/undo") this.#takenBack(reply.pair);
    }
    this.refresh();
  }

  #takenBack(pair) {
    this.#undoing = false;
    this.#stage = "waiting";
    if (pair) {
      this.hand.putBack(pair);
      say($("last"), "Your last answer was taken back: choose again.");
    } else this.toast("There is no answer of yours to take back.");
    this.#present();
  }

  #refused({ act, error }) {
    const undo = act.path === "/api/undo";
    if (undo) [this.#undoing, this.#stage] = [false, "waiting"];
    else say($("last"), "");
    this.hand.forget(act.body.pair);
    this.toast(`${undo ? "Not taken back" : "Not counted"}: ${sentence(error.message)}`, 9);
    this.#present();
    this.refresh();
  }

  /** Another tab answered the pair that stands here. */
  #elsewhere(event) {
    let act = null;
    try { act = JSON.parse(event.newValue ?? "null"); } catch { return; }
    const { pair } = this.hand;
    if (!event.key?.startsWith("ubp2.outbox.") || !pair || act?.body?.pair !== pair.id) return;
    if (act.body.annotator !== this.annotator) return;
    say($("last"), "This pair was answered in another tab.");
    this.#advance();
    this.refresh();
  }

  #setProgress(progress) {
    if (!progress) return;
    this.panel.progress(progress);
  }
}

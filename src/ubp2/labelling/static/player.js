// Both clips on one clock. The clock is ours: the videos follow it, nudged by their rate and set right when far off;
// when one of them has to load, the clock stands still and so does the other.

import { Deck, SIDES } from "./deck.js";

const REST = 600; // ms that the last frame stands before the clips start again
export const SPEEDS = [0.25, 0.5, 0.75, 1, 1.5, 2];

export class Player extends EventTarget {
  #decks;
  #front;
  #time = 0; // seconds into both clips
  #rest = 0;
  #before = 0;
  #moved = false; // the videos are to be set to the clock before it goes on
  #held = false;
  playing = false;
  speed = 1;

  /** `frames` are the two places to put videos into. */
  constructor(frames) {
    super();
    this.#decks = [new Deck(frames), new Deck(frames)];
    this.#front = this.#decks[0];
    requestAnimationFrame((now) => this.#tick(now));
  }

  get #behind() {
    return this.#decks.find((deck) => deck !== this.#front);
  }

  get pair() { return this.#front.pair; }
  get ready() { return this.#front.state === "ready"; }
  get fps() { return this.pair?.left.fps || 10; }
  get frames() { return Math.max(1, ...SIDES.map((side) => this.pair?.[side].frames || 1)); }
  get length() { return this.frames / this.fps; }
  get frame() { return Math.min(this.frames - 1, Math.floor(this.#time * this.fps + 1e-6)); }
  get size() { return [this.#front.videos.left.videoWidth, this.#front.videos.left.videoHeight]; }
  get videos() { return this.#front.list; }

  /** Put a pair on the screen, from the other deck where it was made ready. Resolves when both show a picture. */
  async show(pair, camera, { keep = false } = {}) {
    const behind = this.#behind;
    const prepared = behind.holds(pair, camera);
    if (prepared) {
      this.#front.list.forEach((video) => video.pause());
      this.#front.show(false);
      this.#front = behind;
    }
    if (!keep) { this.#time = 0; this.#rest = 0; }
    this.#moved = true;
    if (!this.#front.holds(pair, camera)) await this.#front.load(pair, camera);
    else if (this.#front.state === "loading") await this.#settled(this.#front);
    if (this.#front.pair?.id !== pair.id || this.#front.state !== "ready") return false;
    this.#front.show(true);
    this.#moved = true;
    this.#tell();
    return true;
  }

  /** Load the pair that comes next where nobody sees it. */
  async prepare(pair, camera) {
    const deck = this.#behind;
    if (deck.holds(pair, camera) || this.#front.holds(pair, camera)) return;
    try {
      await deck.load(pair, camera);
    } catch { /* tried again, and told, when the pair is shown */ }
  }

  async #settled(deck) {
    while (deck.state === "loading") await new Promise((done) => setTimeout(done, 40));
    if (deck.state === "failed") throw deck.error;
  }

  /** Nothing on the screen, e.g. while waiting. */
  hide() {
    this.#front.list.forEach((video) => video.pause());
    this.#front.show(false);
  }

  play() {
    if (!this.playing && this.frame >= this.frames - 1) this.#time = 0;
    this.playing = true;
    this.#moved = true;
    this.#tell();
  }

  pause() {
    this.playing = false;
    this.#rest = 0;
    this.#toFrame(this.frame);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  replay() {
    this.#time = 0;
    this.#rest = 0;
    this.play();
  }

  /** Stop, and go `by` frames on or back. */
  step(by) {
    this.playing = false;
    this.#toFrame(this.frame + by);
  }

  seek(frame) {
    this.playing = false;
    this.#toFrame(frame);
  }

  #toFrame(frame) {
    const target = Math.max(0, Math.min(this.frames - 1, frame));
    this.#time = (target + 0.5) / this.fps; // the middle of a frame: rounding cannot show its neighbour
    this.#moved = true;
    this.#tell();
  }

  #tick(now) {
    requestAnimationFrame((next) => this.#tick(next));
    const passed = Math.min(0.1, (now - this.#before) / 1000); // a hidden tab does not run ahead
    this.#before = now;
    if (!this.ready || document.hidden) return this.#hold();
    if (this.#moved) return this.#place();
    if (!this.playing) return this.#hold();
    if (this.videos.some((video) => this.#lacks(video))) return this.#hold();
    if (this.#rest > 0) {
      this.#rest -= passed * 1000;
      if (this.#rest <= 0) { this.#time = 0; this.#moved = true; }
      return;
    }
    const shown = this.frame;
    this.#time += passed * this.speed;
    if (this.#time >= this.length) {
      this.#time = this.length - 0.5 / this.fps;
      this.#rest = REST;
      this.#hold();
    } else this.#follow();
    if (this.frame !== shown) this.#tell();
  }

  /** Set both videos to the clock; the clock goes on when both are there. */
  #place() {
    if (this.videos.some((video) => video.seeking)) return;
    this.#hold();
    for (const video of this.videos) video.currentTime = this.#of(video);
    this.#moved = false;
  }

  #lacks(video) {
    if (video.seeking) return true;
    if (video.readyState >= 3 || video.ended || video.currentTime > this.length - 1.5 / this.fps) return false;
    if (video.readyState < 2) video.play().catch((error) => this.#stopped(error)); // phones load when asked to play
    return true;
  }

  /** The place of the clock in one video; a shorter one stands on its last frame. */
  #of(video) {
    const end = Number.isFinite(video.duration) ? video.duration : this.length;
    return Math.max(0, Math.min(this.#time, end - 0.5 / this.fps));
  }

  #follow() {
    this.#held = false;
    for (const video of this.videos) {
      const off = video.currentTime - this.#of(video);
      if (Math.abs(off) > Math.max(0.25, 3 / this.fps) * Math.max(1, this.speed)) video.currentTime = this.#of(video);
      const near = Math.abs(off) < 0.25 / this.fps;
      video.playbackRate = this.speed * (near ? 1 : Math.max(0.7, Math.min(1.3, 1 - 2 * off)));
      if (video.paused && !video.ended) video.play().catch((error) => this.#stopped(error));
    }
  }

  /** A browser that lets nothing start by itself (power saving): the play button then does. */
  #stopped(error) {
    if (error.name !== "NotAllowedError") return;
    this.playing = false;
    this.#tell();
  }

  #hold() {
    if (this.#held) return;
    this.#held = true;
    for (const video of this.videos) video.pause();
  }

  #tell() {
    this.dispatchEvent(new Event("moved"));
  }
}

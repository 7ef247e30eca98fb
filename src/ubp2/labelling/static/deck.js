// Two videos that belong together, loaded until both show a picture. The player holds two decks: one that is seen and
// one in which the next pair is made ready.

import { el } from "./dom.js";

const PATIENCE = 20_000; // ms without a single byte of a clip before it counts as failed
const HESITATION = 3_000; // ms after which a known length is enough: some phones load pictures only when played
const TYPES = { mp4: 'video/mp4; codecs="avc1.640028"', webm: 'video/webm; codecs="vp9"' };

export const SIDES = ["left", "right"];

/** Why a deck has no picture; `passing` when it may work later with nothing else done. */
export class ClipError extends Error {
  constructor(message, side, passing = false) {
    super(message);
    this.side = side;
    this.passing = passing;
  }
}

export class Deck {
  pair = null;
  camera = null;
  state = "empty"; // "loading", "ready", "failed"
  error = null;
  #round = 0;

  constructor(frames) {
    this.videos = Object.fromEntries(SIDES.map((side) => {
      const video = el("video", { preload: "auto", playsinline: true, tabindex: "-1", class: "clip", "aria-label": `${side} clip` });
      video.muted = true; // what browsers let start by itself
      video.disablePictureInPicture = true;
      video.disableRemotePlayback = true;
      frames[side].append(video);
      return [side, video];
    }));
  }

  get list() {
    return SIDES.map((side) => this.videos[side]);
  }

  holds(pair, camera) {
    return this.pair?.id === pair.id && this.camera === camera && this.state !== "empty" && this.state !== "failed";
  }

  show(seen) {
    for (const video of this.list) video.classList.toggle("seen", seen);
  }

  /** Load both sides; resolves when each shows a picture, rejects with a `ClipError`; null when overtaken by another load. */
  async load(pair, camera) {
    const round = ++this.#round;
    Object.assign(this, { pair, camera, state: "loading", error: null });
    try {
      await Promise.all(SIDES.map((side) => loadOne(this.videos[side], pair[side], camera, side, () => round !== this.#round)));
    } catch (error) {
      if (round !== this.#round) return null;
      Object.assign(this, { state: "failed", error });
      throw error;
    }
    if (round !== this.#round) return null;
    this.state = "ready";
    return this;
  }
}

async function loadOne(video, side, camera, name, overtaken) {
  if (side.failed) throw new ClipError(String(side.failed), name);
  const files = side.clips?.[camera] ?? Object.values(side.clips ?? {})[0] ?? {};
  const kinds = Object.keys(TYPES).filter((kind) => files[kind]);
  const playable = kinds.filter((kind) => video.canPlayType(TYPES[kind]));
  if (!kinds.length) throw new ClipError("the server has no file for this clip", name);
  if (!playable.length) throw new ClipError("this browser plays neither H.264 nor WebM", name);
  for (const kind of playable) {
    if (overtaken()) return;
    if (await opens(video, files[kind])) return;
  }
  if (!overtaken()) throw await reason(files[playable[0]], name);
}

/** Whether the video shows its first picture; false when it will not. */
function opens(video, url) {
  return new Promise((done) => {
    let timer;
    const finish = (well) => {
      clearTimeout(timer);
      for (const name of ["loadeddata", "error", "emptied", "progress"]) video.removeEventListener(name, heard);
      done(well);
    };
    const wait = () => { clearTimeout(timer); timer = setTimeout(() => finish(video.readyState >= 1), PATIENCE); };
    const heard = (event) => event.type === "progress" ? wait() : finish(event.type === "loadeddata");
    video.pause();
    video.src = url;
    video.load(); // fires "emptied" of the clip before, now, while nobody listens
    setTimeout(() => {
      if (video.readyState >= 2) return finish(true);
      setTimeout(() => video.readyState >= 1 && finish(true), HESITATION);
      if (video.error) return finish(false);
      for (const name of ["loadeddata", "error", "emptied", "progress"]) video.addEventListener(name, heard);
      wait();
    });
  });
}

/** Ask for one byte to tell a clip that is broken from a server that is away. */
async function reason(url, side) {
  try {
    const response = await fetch(url, { headers: { Range: "bytes=0-0" }, cache: "no-store" });
    if (response.ok) return new ClipError("the browser could not play this clip", side);
    if (response.status === 404) return new ClipError("the server has lost this clip", side, true); // it draws it anew
    const passing = response.status >= 500 || [401, 403, 429].includes(response.status);
    return new ClipError(`the server answered with ${response.status} for this clip`, side, passing);
  } catch {
    return new ClipError("the server cannot be reached", side, true);
  }
}

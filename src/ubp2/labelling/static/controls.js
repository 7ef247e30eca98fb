// The controls below the clips, and what the answer buttons look like.

import { $, el, say, shelf } from "./dom.js";
import { Player, SPEEDS } from "./player.js";
import { aboutClips, cameraName } from "./words.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Controls {
  #cameras = [];
  #shape = "";
  #well = false; // there is a pair to play

  /** `reload` is called when the same pair is to be shown from another camera. */
  constructor(session, reload) {
    const sides = [...document.querySelectorAll(".side")];
    this.player = new Player(Object.fromEntries(sides.map((side) => [side.dataset.side, side.querySelector(".frame")])));
    this.memory = `ubp2.camera.${session.env}`;
    this.reload = reload;
    this.still = calm.matches; // somebody who wants little motion starts the clips by hand, until they have
    this.#wire(sides);
    this.#setSpeed(Number(shelf.get("ubp2.speed")) || 1);
    this.#setLarger(shelf.get("ubp2.larger") === "yes");
    this.#show();
  }

  #wire(sides) {
    const { player } = this;
    const after = (does) => (event) => {
      if (event.detail > 0) event.currentTarget.blur();
      if (this.#well) does();
    };
    $("play").addEventListener("click", after(() => this.act("pause")));
    $("replay").addEventListener("click", after(() => this.act("replay")));
    $("back").addEventListener("click", after(() => player.step(-1)));
    $("forward").addEventListener("click", after(() => player.step(1)));
    for (const side of sides) side.querySelector(".frame").addEventListener("click", () => this.act("pause"));
    $("scrub").addEventListener("input", () => (this.#well ? player.seek(Number($("scrub").value)) : this.#show()));
    this.#pick($("speed"), (speed) => this.#setSpeed(Number(speed)));
    this.#pick($("camera"), (camera) => this.#setCamera(camera));
    $("larger").addEventListener("click", () => this.#setLarger($("larger").getAttribute("aria-pressed") !== "true"));
    player.addEventListener("moved", () => this.#show());
  }

  /** After the mouse, keys are for the clips again; who chooses with keys stays where they are. */
  #pick(select, does) {
    let mouse = false;
    select.addEventListener("pointerdown", () => { mouse = true; });
    select.addEventListener("keydown", () => { mouse = false; });
    select.addEventListener("change", () => {
      does(select.value);
      if (mouse) select.blur();
    });
  }

  act(action) {
    const { player } = this;
    if (!player.ready) return;
    if (action === "pause") {
      player.toggle();
      this.still = !player.playing && calm.matches;
    } else if (action === "replay") player.replay();
    else if (action === "back") player.step(-1);
    else if (action === "forward") player.step(1);
    else if (action === "slower" || action === "faster") this.#setSpeed(SPEEDS[SPEEDS.indexOf(player.speed) + (action === "faster" ? 1 : -1)] ?? player.speed);
    else if (action === "camera" && this.#cameras.length > 1) this.#setCamera(this.#cameras[(this.#cameras.indexOf($("camera").value) + 1) % this.#cameras.length]);
  }

  /** The camera to show a pair from: the one chosen last, where both clips have it. */
  cameraFor(pair) {
    const cameras = Object.keys(pair.left.clips ?? {}).filter((camera) => camera in (pair.right.clips ?? {}));
    const wanted = shelf.get(this.memory);
    return cameras.includes(wanted) ? wanted : cameras[0];
  }

  /** Give up the chosen camera for the first; whether that is another one. */
  firstCamera() {
    const chosen = shelf.get(this.memory);
    shelf.remove(this.memory);
    return Boolean(chosen) && chosen !== this.#cameras[0];
  }

  /** Take the size and the cameras of the pair on the screen. */
  fit() {
    const { player } = this;
    const [width, height] = player.size;
    if (width && `${width} / ${height}` !== this.#shape) {
      this.#shape = `${width} / ${height}`;
      document.documentElement.style.setProperty("--shape", this.#shape);
      document.documentElement.style.setProperty("--ratio", String(width / height));
    }
    const { pair } = player;
    const cameras = Object.keys(pair.left.clips).filter((camera) => camera in pair.right.clips);
    if (cameras.join() !== this.#cameras.join()) {
      this.#cameras = cameras;
      $("camera").replaceChildren(...cameras.map((camera) => el("option", { value: camera }, cameraName(camera))));
    }
    $("camera").value = this.cameraFor(pair);
    $("camera-pick").hidden = cameras.length < 2;
    say($("about-clips"), aboutClips(pair));
    $("about-clips").hidden = !$("about-clips").textContent;
    $("scrub").max = String(player.frames - 1);
    this.#show();
  }

  /** Whether there is a pair to play and to answer. What is really disabled would lose the focus of the keyboard. */
  enable(well) {
    this.#well = well;
    const controls = [...document.querySelectorAll(".answer"), ...["play", "replay", "back", "forward", "scrub"].map($)];
    for (const control of controls) control.setAttribute("aria-disabled", String(!well));
  }

  /** Show for a moment what was chosen, while the next pair already stands. */
  flash(choice) {
    const button = document.querySelector(`.answer[data-choice="${choice}"]`);
    button.classList.remove("chosen");
    void button.offsetWidth; // start the animation anew
    button.classList.add("chosen");
    setTimeout(() => button.classList.remove("chosen"), 600);
  }

  #setSpeed(speed) {
    this.player.speed = SPEEDS.includes(speed) ? speed : 1;
    $("speed").value = String(this.player.speed);
    shelf.set("ubp2.speed", String(this.player.speed));
  }

  #setCamera(camera) {
    shelf.set(this.memory, camera);
    $("camera").value = camera;
    this.reload();
  }

  #setLarger(larger) {
    $("larger").setAttribute("aria-pressed", String(larger));
    document.body.classList.toggle("stacked", larger);
    shelf.set("ubp2.larger", larger ? "yes" : "no");
  }

  #show() {
    const { player } = this;
    const [at, all] = [player.frame, player.frames];
    document.body.classList.toggle("playing", player.playing);
    $("play").setAttribute("aria-label", player.playing ? "Pause" : "Play");
    $("scrub").value = String(at);
    $("scrub").setAttribute("aria-valuetext", `frame ${at + 1} of ${all}`);
    $("frame").textContent = `${at + 1} / ${all}`;
  }
}

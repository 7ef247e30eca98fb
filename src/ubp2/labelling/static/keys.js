// Which key does what. Letters and marks are read as typed, digits also by their place (AZERTY needs Shift for them).
// Who speaks to the computer, or hits keys by accident, can switch off those that type something.

import { shelf } from "./dom.js";

const DEFAULT = {
  left: ["f", "1"],
  right: ["j", "2"],
  equal: ["e", "3", "="],
  "cant-tell": ["c", "4"],
  undo: ["u", "Backspace"],
  replay: ["r"],
  pause: [" "],
  back: [",", "ArrowLeft"],
  forward: [".", "ArrowRight"],
  slower: ["-"],
  faster: ["+"],
  camera: ["v"],
  help: ["?"],
};

const MEANING = {
  left: "Left is better",
  right: "Right is better",
  equal: "Equal",
  "cant-tell": "Can’t tell",
  undo: "Take the last answer back",
  replay: "Replay both from the start",
  pause: "Play or pause",
  back: "One frame back",
  forward: "One frame on",
  slower: "Slower",
  faster: "Faster",
  camera: "Next camera",
  help: "This help",
};

const MEMORY = "ubp2.keys";
const SHOWN = { " ": "Space", ArrowLeft: "←", ArrowRight: "→", Backspace: "⌫" };

const shown = (key) => SHOWN[key] ?? (key.length === 1 ? key.toUpperCase() : key);

export class Keys {
  constructor() {
    this.#mark();
  }

  /** Whether keys that type something act; space, arrows, backspace and the usual chord for undo always do. */
  get on() {
    return shelf.get(MEMORY) !== "off";
  }

  set on(wanted) {
    shelf.set(MEMORY, wanted ? "on" : "off");
    this.#mark();
  }

  #works(key) {
    return this.on || key.length > 1 || key === " ";
  }

  /** Write on the buttons which keys they have, for eyes and for programs that read the page out. */
  #mark() {
    for (const button of document.querySelectorAll(".answer, [data-act]")) {
      const keys = DEFAULT[button.dataset.act ?? button.dataset.choice].filter((key) => this.#works(key));
      button.setAttribute("aria-keyshortcuts", keys.map((key) => (key === " " ? "Space" : key)).join(" "));
      button.querySelector("kbd")?.replaceChildren(...keys.slice(0, 1).map(shown));
    }
  }

  /** The action that a key press asks for, or null; chords belong to the browser, except the usual one for undo. */
  action(event) {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "z") return "undo";
    if (event.ctrlKey || event.metaKey || event.altKey) return null;
    const typed = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const digit = /^Digit(\d)$/.exec(event.code ?? "")?.[1];
    if (!this.#works(typed)) return null;
    for (const wanted of event.shiftKey ? [typed] : [typed, digit]) {
      for (const [action, keys] of Object.entries(DEFAULT)) {
        if (wanted !== undefined && keys.some((key) => (key.length === 1 ? key.toLowerCase() : key) === wanted)) return action;
      }
    }
    return null;
  }

  /** [meaning, keys as shown] of everything, for the help. */
  get table() {
    return Object.entries(MEANING).map(([action, meaning]) => [meaning, DEFAULT[action].map(shown)]);
  }
}

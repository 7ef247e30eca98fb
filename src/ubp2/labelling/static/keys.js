// Which key does what. Letters and marks are read as typed, digits also by their place (AZERTY needs Shift for them).

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

const SHOWN = { " ": "Space", ArrowLeft: "←", ArrowRight: "→", Backspace: "⌫" };

export const shown = (key) => SHOWN[key] ?? (key.length === 1 ? key.toUpperCase() : key);

export class Keys {
  #byAction;

  /** `wanted` is the server's {action: key or [key, ...]}; what it leaves out stays as it is. */
  constructor(wanted = {}) {
    this.#byAction = { ...DEFAULT };
    for (const [action, keys] of Object.entries(wanted ?? {})) {
      const list = (Array.isArray(keys) ? keys : [keys]).filter((key) => typeof key === "string" && key);
      if (action in DEFAULT && list.length) this.#byAction[action] = list;
    }
  }

  of(action) {
    return this.#byAction[action];
  }

  /** The action that a key press asks for, or null; chords belong to the browser, except the usual one for undo. */
  action(event) {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "z") return "undo";
    if (event.ctrlKey || event.metaKey || event.altKey) return null;
    const typed = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const digit = /^Digit(\d)$/.exec(event.code ?? "")?.[1];
    for (const wanted of event.shiftKey ? [typed] : [typed, digit]) {
      for (const [action, keys] of Object.entries(this.#byAction)) {
        if (wanted !== undefined && keys.some((key) => (key.length === 1 ? key.toLowerCase() : key) === wanted)) return action;
      }
    }
    return null;
  }

  /** [meaning, keys as shown] of everything, for the help. */
  get table() {
    return Object.entries(MEANING).map(([action, meaning]) => [meaning, this.of(action).map(shown)]);
  }
}

// The three dialogs: the name, the help, a clip that does not work.

import { $, el } from "./dom.js";

export function setUpDialogs(keys) {
  $("help").addEventListener("click", openHelp);
  $("help-close").addEventListener("click", () => $("help-dialog").close());
  $("help-dialog").addEventListener("click", (event) => event.target === $("help-dialog") && $("help-dialog").close());
  $("help-dialog").addEventListener("keydown", (event) => {
    if (event.key !== "?") return;
    event.preventDefault();
    $("help-dialog").close();
  });
  $("keys-on").checked = keys.on;
  $("keys-on").addEventListener("change", () => { keys.on = $("keys-on").checked; });
  $("keys").replaceChildren(...keys.table.map(([meaning, list]) =>
    el("tr", {}, el("th", { scope: "row" }, meaning), el("td", {}, list.flatMap((key, at) => [at ? " or " : "", el("kbd", {}, key)])))));
}

export function openHelp() {
  if (!$("help-dialog").open) $("help-dialog").showModal();
}

/** Ask for the annotator's name; the name before, or null, when cancelled. Without a name there is no cancelling. */
export function askName(before) {
  const dialog = $("name-dialog");
  $("name").value = before;
  $("name-error").textContent = "";
  $("name-cancel").hidden = !before;
  return new Promise((done) => {
    const off = new AbortController();
    const finish = (name) => { off.abort(); dialog.close(); done(name); };
    $("name-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const name = $("name").value.trim().replace(/\s+/g, " ");
      if (name) finish(name);
      else $("name-error").textContent = "Please give a name; any word will do.";
    }, { signal: off.signal });
    $("name-cancel").addEventListener("click", () => finish(null), { signal: off.signal });
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      if (before) finish(null);
    }, { signal: off.signal });
    dialog.addEventListener("close", () => { // browsers let a second Escape through
      if (off.signal.aborted) return;
      if (before) finish(null);
      else dialog.showModal();
    }, { signal: off.signal });
    dialog.showModal();
    $("name").select();
  });
}

/** Ask what is wrong with a pair; its reason, or null when cancelled. */
export function askProblem() {
  const dialog = $("problem-dialog");
  $("problem-form").reset();
  return new Promise((done) => {
    const off = new AbortController();
    const finish = (reason) => { off.abort(); dialog.close(); done(reason); };
    $("problem-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const chosen = new FormData($("problem-form")).get("reason");
      finish([chosen, $("problem-text").value.trim()].filter(Boolean).join(": ") || "skipped by the annotator");
    }, { signal: off.signal });
    $("problem-cancel").addEventListener("click", () => finish(null), { signal: off.signal });
    dialog.addEventListener("close", () => off.signal.aborted || finish(null), { signal: off.signal });
    dialog.showModal();
  });
}

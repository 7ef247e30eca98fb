// The page: who labels, which pair is shown, what was answered. Saving is the outbox's, playing the player's.

import { belongTo, call, Refused } from "./api.js";
import { Dashboard } from "./dashboard.js";
import { $, el, randomKey, say, shelf, sleep } from "./dom.js";
import { Keys } from "./keys.js";
import { Outbox } from "./outbox.js";
import { Labelling } from "./labelling.js";
import { askName, openHelp, setUpDialogs } from "./dialogs.js";
import { saving, sentence, shut } from "./words.js";

const NAME = "ubp2.annotator";

async function main() {
  dropToken();
  const session = await firstSession();
  belongTo(session.run);
  const keys = new Keys();
  describe(session);
  setUpDialogs(keys);
  const outbox = new Outbox(session.run, tabName());
  showSaving(outbox);
  const annotator = shelf.get(NAME) ?? (await nameFromDialog(""));
  const labelling = new Labelling({ session, outbox, annotator, toast });
  showName(annotator);
  $("who").addEventListener("click", async () => {
    const name = await nameFromDialog(labelling.annotator);
    if (name) { showName(name); labelling.become(name); }
  });
  setUpTabs(labelling);
  document.addEventListener("keydown", (event) => onKey(event, keys, labelling));
  if (!shelf.lasting) toast("This browser keeps nothing for the page (private window?): answers are safe only once they are saved.", 12);
  labelling.refresh();
}

/** A token in the address was turned into a cookie by now; it need not stay in the history. */
function dropToken() {
  const address = new URL(location.href);
  if (!address.searchParams.has("token")) return;
  address.searchParams.delete("token");
  history.replaceState(history.state, "", address);
}

async function firstSession() {
  for (let tries = 0; ; tries += 1) {
    try {
      return await call("/api/session");
    } catch (error) {
      const [title, text] = error.shut ? shut(error).words : ["The server does not answer", `${sentence(error.message)} Trying again.`];
      say($("waiting-title"), title);
      say($("waiting-text"), text);
      if (error instanceof Refused) return new Promise(() => {}); // nothing that waiting would mend
      await sleep(Math.min(8000, 500 * 2 ** tries));
    }
  }
}

function describe(session) {
  const title = session.title || session.env || "Label clips";
  $("title").textContent = title;
  document.title = `${title} · label`;
  const instruction = session.instruction || "Which clip do you like better?";
  $("instruction").textContent = instruction;
  $("question").classList.toggle("unseen", instruction.includes("?")); // it asks by itself
}

/** The name of this tab: the same after a reload, another in every tab. */
function tabName() {
  try {
    const name = sessionStorage.getItem("ubp2.tab") ?? randomKey();
    sessionStorage.setItem("ubp2.tab", name);
    return name;
  } catch {
    return randomKey();
  }
}

async function nameFromDialog(before) {
  const name = await askName(before);
  if (name) shelf.set(NAME, name);
  return name;
}

function showName(name) {
  $("who").hidden = false;
  $("who-name").textContent = name;
}

function showSaving(outbox) {
  const show = () => {
    const state = outbox.state;
    $("save").dataset.state = state.name;
    $("save").title = state.trouble ? sentence(state.trouble.message) : "";
    const spoken = saving(state);
    // The countdown is for eyes; a screen reader hears the change, not each second.
    $("save").setAttribute("aria-live", state.name === "saving" || /again in|trying/.test(spoken) && $("save").dataset.told === state.name ? "off" : "polite");
    $("save").dataset.told = state.name;
    say($("save-text"), spoken);
    $("save-now").hidden = state.name !== "offline" && state.name !== "shut";
  };
  outbox.addEventListener("change", show);
  $("save-now").addEventListener("click", () => outbox.hurry());
  setInterval(show, 1000);
  show();
  outbox.pump();
}

function setUpTabs(labelling) {
  const dashboard = new Dashboard();
  const names = ["label", "dashboard"];
  const show = (name, focus = false) => {
    for (const one of names) {
      const here = one === name;
      $(`tab-${one}`).setAttribute("aria-selected", String(here));
      $(`tab-${one}`).tabIndex = here ? 0 : -1;
      $(`view-${one}`).hidden = !here;
      if (here && focus) $(`tab-${one}`).focus();
    }
    labelling.setSeen(name === "label");
    if (name === "dashboard") dashboard.open();
    else dashboard.close();
  };
  const fromAddress = () => show(location.hash === "#dashboard" ? "dashboard" : "label");
  const go = (name, focus) => {
    if (`#${name}` !== (location.hash || "#label")) history.pushState(null, "", `#${name}`);
    show(name, focus);
  };
  for (const one of names) {
    $(`tab-${one}`).addEventListener("click", () => go(one, false));
    $(`tab-${one}`).addEventListener("keydown", (event) => {
      if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      go(names[event.key === "Home" ? 0 : event.key === "End" ? 1 : 1 - names.indexOf(one)], true);
    });
  }
  addEventListener("popstate", fromAddress);
  fromAddress();
}

/** Keys work everywhere on the label view, except where an element has a use of its own for them. */
function onKey(event, keys, labelling) {
  if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
  const action = keys.action(event);
  if (!action) return;
  if (action === "help") { event.preventDefault(); openHelp(); return; }
  if (!labelling.seen) return;
  const place = event.target;
  const inField = place.matches?.("input:not([type=checkbox]):not([type=range]), select, textarea");
  const ownSpace = event.key === " " && place.matches?.("button, summary, a, input[type=checkbox], select");
  const ownArrows = event.key.startsWith("Arrow") && place.matches?.("input[type=range], [role=tab]");
  if (inField || ownSpace || ownArrows) return;
  event.preventDefault();
  if (event.repeat && action !== "back" && action !== "forward") return;
  labelling.act(action);
}

let toastTimer;
/** A sentence that passes; it is also read out. */
function toast(text, seconds = 6) {
  const place = $("toast");
  clearTimeout(toastTimer);
  place.hidden = false;
  place.replaceChildren(el("span", {}, text), el("button", { type: "button", class: "quiet", onclick: () => { place.hidden = true; } }, "Close"));
  toastTimer = setTimeout(() => { place.hidden = true; }, seconds * 1000);
}

main();

// What the page says about the state of things, as sentences. Pure functions of what the server sent.

import { Refused } from "./api.js";

export const CHOICES = { left: "left", right: "right", equal: "equal", "cant-tell": "can’t tell" };

const TITLE_CHANGES = "You can leave this page open: its title changes when there is one.";

/** A title and a sentence for a time without a pair, in the server's reasons. */
export function waitingFor(why) {
  switch (why) {
    case "rendering":
      return ["Drawing the next pair", "The clips are rendered from the simulator; this takes some seconds."];
    case "the budget is spent":
      return ["All done, thank you", "The budget of questions is spent. You can close this page, or look at the dashboard."];
    case "everything is answered":
      return ["Everything is answered", "No trainer is running at the moment. Your answers are stored; should one go on, new pairs appear here."];
    case "the last pairs are with others":
      return ["The last pairs are with others", `You get one if they close their page or are away for five minutes. ${TITLE_CHANGES}`];
    case "waiting for the trainer":
      return ["The agent is practising", `It asks when it has new clips to compare. ${TITLE_CHANGES}`];
    default:
      return why ? ["No pair at the moment", sentence(why)] : ["Loading the next pair", ""];
  }
}

/** What to say where a server is there and takes nothing from this page, of which so many acts wait. */
export function shut({ status, message }, count = 0) {
  const kept = count ? ` ${keeps(count)}.` : "";
  if (status === 401) return { words: ["The server does not know this browser", `Open the whole link that the terminal printed, with its token.${kept}`] };
  if (status === 421) {
    const later = count ? ` ${keeps(count)} and sent when your run is served here again.` : "";
    return { words: ["Another run is served here", `Reload the page to label it.${later}`], act: "reload" };
  }
  return { words: ["The server does not let this page in", sentence(message) + kept] };
}

const keeps = (count) => `${count === 1 ? "Your answer is" : `${count} answers are`} kept in this browser`;

/** What to say without a pair, and what can be done: "name" (give another), "again" (try now), "reload" or nothing. */
export function noPair({ saving, trouble, why }) {
  const { name, count } = saving;
  if (name === "shut" || trouble?.shut) return shut(trouble?.shut ? trouble : saving.trouble, count);
  if (name === "offline") return { words: ["The server does not answer", `${keeps(count)} and sent when it is back. You can leave this page open.`] };
  if (trouble instanceof Refused) return { words: ["The server said no", sentence(trouble.message)], act: "name" };
  if (trouble) return { words: ["The server does not answer", `${sentence(trouble.message)} Trying again.`], act: "again" };
  return { words: waitingFor(why) };
}

/** The state of saving, in a few words for the corner. */
export function saving({ name, count, trouble, until }, now = Date.now()) {
  if (name === "saved") return "Saved";
  if (name === "saving") return count > 1 ? `Saving ${count}…` : "Saving…";
  if (name === "shut") return `${trouble.status === 421 ? "Another run" : "Not allowed"}, ${count} kept here`;
  const seconds = Math.ceil((until - now) / 1000);
  return `Offline, ${count} kept here${seconds > 0 ? ` · again in ${seconds} s` : " · trying"}`;
}

export function budget(progress) {
  const { answered = 0, asked = 0, budget: all } = progress;
  const total = all || asked;
  if (!total) return { text: "No questions yet", part: 0 };
  return { text: `${answered} of ${total} answered`, part: Math.min(1, answered / total) };
}

/** Who answered, and how far the trainer has come with asking. */
export function shares({ asked, budget: all, mine }) {
  return [all && asked < all ? `${asked} asked` : "", Number.isFinite(mine) ? `${mine} by you` : ""].filter(Boolean).join(", ");
}

export function phase(progress) {
  const name = progress.phase ? capital(String(progress.phase)) : "–";
  if (!Number.isFinite(progress.decision)) return name;
  const of = Number.isFinite(progress.steps) ? ` of ${progress.steps.toLocaleString("en")}` : "";
  return `${name}, decision ${progress.decision.toLocaleString("en")}${of}`;
}

export function trainer(progress) {
  const words = { running: "Running", "waiting for answers": "Waiting for answers", gone: "Not running; answers are kept for it" };
  return words[progress.trainer] ?? (progress.trainer ? capital(String(progress.trainer)) : "–");
}

export function policy(progress) {
  const words = { answers: "The trainer waits", "go-on": "The trainer goes on with what it has", fallback: "A scripted teacher steps in" };
  return words[progress.waiting] ?? (progress.waiting ? capital(String(progress.waiting)) : "–");
}

/** What one has to know of the clips to judge them: their pace, or why they are drawings. */
export function aboutClips(pair) {
  const sides = [pair.left, pair.right];
  const slow = sides.map((side) => side.speed).find((speed) => Number.isFinite(speed) && Math.abs(speed - 1) > 0.01);
  const note = sides.map((side) => side.note).find(Boolean);
  const pace = slow ? `${slow < 1 ? "Slowed down" : "Sped up"}: 1× is ${Number(slow.toPrecision(2))} of the real pace.` : "";
  return [pace, note ? sentence(`this is a drawing: ${note}`) : ""].filter(Boolean).join(" ");
}

/** What is said after an answer, with the model's view where it may be told. */
export function afterAnswer(choice, agreement) {
  const said = `Your last answer: ${CHOICES[choice] ?? choice}.`;
  if (!agreement) return said;
  if (agreement.model === "unsure") return `${said} The model was unsure.`;
  if (choice === "equal" || choice === "cant-tell") return `${said} The model would have said ${agreement.model}.`;
  return agreement.agrees ? `${said} ✓ The model agrees.` : `${said} ✗ The model would have said ${agreement.model}.`;
}

/** A camera's name as people write it: "gripperPOV" is "Gripper POV", "corner4" is "Corner 4". */
export function cameraName(name) {
  return capital(name.replace(/[_-]+/g, " ").replace(/([a-z])([A-Z0-9])/g, "$1 $2"));
}

export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function sentence(text) {
  const start = capital(String(text).trim());
  return /[.!?]$/.test(start) ? start : `${start}.`;
}

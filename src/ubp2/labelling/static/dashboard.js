// The dashboard: how well the agent does, what reward it has learned, how far annotators agree.

import { call } from "./api.js";
import { lineChart, noChart, short, table } from "./charts.js";
import { $, el, plural, say } from "./dom.js";
import { CHOICES, sentence } from "./words.js";

const EVERY = 15_000;
const START = [0, 10]; // of decisions and labels: both are counted from 0
const FEW = 10; // answers of which a percentage says too much

export class Dashboard {
  #timer = null;
  #last = "";

  constructor() {
    $("dash-refresh").addEventListener("click", () => this.#load());
  }

  open() {
    this.#load();
    this.#timer ??= setInterval(() => document.hidden || this.#load(), EVERY);
  }

  close() {
    clearInterval(this.#timer);
    this.#timer = null;
  }

  async #load() {
    try {
      const found = await call("/api/dashboard");
      const text = JSON.stringify(found);
      if (text !== this.#last) { // an open table of numbers stays open while nothing changes
        const open = [...document.querySelectorAll("#dash details")].map((part) => part.open);
        $("dash").replaceChildren(...parts(found));
        document.querySelectorAll("#dash details").forEach((part, at) => { part.open = Boolean(open[at]); });
        this.#last = text;
      }
      say($("dash-when"), `As of ${new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}`);
    } catch (error) {
      say($("dash-when"), `${sentence(error.message)} ${this.#last ? "What you see is older." : ""}`);
    }
  }
}

function parts(found) {
  return [
    el("section", { "aria-label": "Success" }, el("div", { class: "charts" }, curves(found.curves?.points ?? []))),
    el("section", { "aria-label": "Learned reward" }, reward(found.reward?.clips ?? [])),
    el("section", { "aria-label": "Exploration" }, el("div", { class: "charts" }, exploration(found.lambda?.points ?? []))),
    el("section", { "aria-label": "Agreement" }, agreement(found.agreement ?? {})),
  ];
}

function curves(points) {
  const percent = (value) => (Number.isFinite(value) ? `${Math.round(100 * value)} %` : "not measured");
  const last = points.filter((point) => Number.isFinite(point.success)).at(-1);
  const words = last ? `Success ${percent(last.success)} at decision ${short(last.decision)} with ${plural(last.labels ?? 0, "label")}.` : "";
  const of = (name) => [{ name: "success", points: points.map((point) => [point[name], point.success]) }];
  const charts = [
    lineChart({ title: "Success while learning", summary: words, x: "decisions", y: "success", series: of("decision"), across: START, range: [0, 1] }),
    lineChart({ title: "Success by labels", summary: words, x: "labels", y: "success", series: of("labels"), across: START, range: [0, 1] }),
  ];
  const returns = points.map((point) => point.return).filter(Number.isFinite);
  if (returns.length && returns.every((value) => value === 0)) {
    charts.push(noChart("Return while learning", "Always 0 so far: the environment gives no reward, or the agent has not found it."));
  } else if (returns.length) {
    charts.push(lineChart({
      title: "Return while learning", summary: `The best so far is ${short(Math.max(...returns))}.`, x: "decisions", y: "return", across: START,
      series: [{ name: "return", points: points.map((point) => [point.decision, point.return]) }],
    }));
  }
  return charts;
}

function reward(clips) {
  const head = [
    el("h3", {}, "Learned reward along the last clips"),
    el("p", { class: "note" }, "What the reward model makes of each decision of clips that were answered, sides as they were shown."),
  ];
  if (!clips.length) return [...head, el("p", { class: "empty" }, "Nothing yet: it appears with the first answers after the agent has learned from some.")];
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
  const along = (values) => (values ?? []).map((value, at) => [at, value]);
  const charts = [...clips].reverse().slice(0, 6).map((clip, at) => {
    const higher = mean(clip.left ?? []) > mean(clip.right ?? []) ? "left" : "right";
    const said = clip.choice ? `Answer: ${CHOICES[clip.choice] ?? clip.choice}. ` : "";
    return lineChart({
      title: clip.title ?? (at ? `${plural(at, "answer")} before` : "Last answer"),
      summary: `${said}The learned reward is higher on the ${higher}.`,
      x: "decision in the clip", y: "reward",
      series: [{ name: "left", points: along(clip.left) }, { name: "right", points: along(clip.right) }],
    });
  });
  return [...head, el("div", { class: "charts" }, charts)];
}

/** One line each for what the agent is uncertain of (reward, dynamics, value), where the run tells them apart. */
function exploration(points) {
  const chart = (title, name, y, meaning) => {
    const parts = [...new Set(points.flatMap((point) => Object.keys(point)))].filter((key) => key.startsWith(`${name}/`)).sort();
    const series = (parts.length ? parts : [name]).map((key) => ({
      name: key.split("/")[1] ?? y,
      points: points.map((point) => [point.decision, point[key]]),
    }));
    const now = series.map((one) => [one.name, one.points.filter(([, value]) => Number.isFinite(value)).at(-1)?.[1]])
      .filter(([, value]) => value !== undefined)
      .map(([part, value]) => (parts.length ? `${short(value)} for ${part}` : short(value)));
    return lineChart({ title, x: "decisions", y, series, across: START, summary: now.length ? `${meaning} Now ${now.join(", ")}.` : meaning });
  };
  return [
    chart("Weight of exploration (λ)", "lambda", "λ", "How much uncertainty counts beside the learned reward when planning."),
    chart("Exploration bonus", "bonus", "bonus", "How uncertain the models are where the agent goes."),
  ];
}

function agreement({ annotators = [], pairs = [], alpha = null, model = null }) {
  const share = (part, of) => (of >= FEW ? `${Math.round((100 * part) / of)} % of ${of}` : of ? `${part} of ${of}` : "–");
  const number = (value) => (Number.isFinite(value) ? value.toFixed(2) : "–");
  const found = [el("h3", {}, "Agreement between annotators")];
  found.push(annotators.length
    ? table(["Annotator", "Answers", "Median time", "Same answer when asked again"],
      annotators.map((one) => [one.name, one.answers ?? 0, Number.isFinite(one.seconds) ? `${one.seconds.toFixed(1)} s` : "–", share(one.consistent, one.repeated)]),
      "Annotators")
    : el("p", { class: "empty" }, "Nobody has answered yet."));
  if (pairs.length) {
    found.push(table(["Two annotators", "Pairs both answered", "Same answer", "Cohen’s κ"],
      pairs.map((one) => [`${one.a} and ${one.b}`, one.both, share(one.agree, one.both), number(one.kappa)]), "Agreement of two"));
  }
  const words = [];
  if (Number.isFinite(alpha)) words.push(`Krippendorff’s α over all annotators: ${alpha.toFixed(2)} (1 is full agreement, 0 is chance).`);
  else if (annotators.length) words.push("Agreement of annotators needs pairs that several of them answered (overlap).");
  if (model?.of) words.push(`The reward model agreed with ${share(model.agree, model.of)} answers.`);
  if (words.length) found.push(el("p", { class: "note" }, words.join(" ")));
  return found;
}

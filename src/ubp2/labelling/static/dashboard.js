// The dashboard: how well the agent does, what reward it has learned, how far annotators agree.

import { call } from "./api.js";
import { lineChart, short, table } from "./charts.js";
import { $, el, plural, say } from "./dom.js";
import { CHOICES, sentence } from "./words.js";

const EVERY = 15_000;

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
    lineChart({ title: "Success while learning", summary: words, x: "decisions", y: "success", series: of("decision"), range: [0, 1] }),
    lineChart({ title: "Success by labels", summary: words, x: "labels", y: "success", series: of("labels"), range: [0, 1] }),
  ];
  if (points.some((point) => Number.isFinite(point.return))) {
    const best = Math.max(...points.map((point) => point.return).filter(Number.isFinite));
    charts.push(lineChart({
      title: "Return while learning", summary: `The best so far is ${short(best)}.`, x: "decisions", y: "return",
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
  if (!clips.length) return [...head, el("p", { class: "empty" }, "Nothing yet: it appears after the first answers.")];
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

function exploration(points) {
  const last = points.at(-1);
  const chart = (title, name, y, meaning) => lineChart({
    title, x: "decisions", y, summary: last && Number.isFinite(last[name]) ? `${meaning} Now ${short(last[name])}.` : meaning,
    series: [{ name: y, points: points.map((point) => [point.decision, point[name]]) }],
  });
  return [
    chart("Weight of exploration (λ)", "lambda", "λ", "How much uncertainty counts beside the learned reward when planning."),
    chart("Exploration bonus", "bonus", "bonus", "How uncertain the models are where the agent goes."),
  ];
}

function agreement({ annotators = [], pairs = [], alpha = null, model = null }) {
  const share = (part, of) => (of ? `${Math.round((100 * part) / of)} % of ${of}` : "–");
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

// Line charts as plain SVG, with the same numbers as text. Series differ by dash and mark as well as by colour.

import { el, svg } from "./dom.js";

const LOOKS = [
  { dash: "", mark: "circle" },
  { dash: "7 4", mark: "square" },
  { dash: "2 3", mark: "diamond" },
];
const HEIGHT = 250;
const EDGE = { left: 52, right: 16, top: 14, bottom: 42 };

/** A figure: heading, one sentence, the chart, its numbers. `series` is [{name, points: [[x, y], ...]}]; `across` and `range`
 *  are what both axes show at least. */
export function lineChart({ title, summary, x, y, series, across = null, range = null }) {
  const shown = series
    .map((one) => ({ ...one, points: one.points.filter(([a, b]) => Number.isFinite(a) && Number.isFinite(b)) }))
    .filter((one) => one.points.length);
  if (!shown.length) return noChart(title, "Nothing to draw yet.");
  const figure = el("figure", { class: "chart" }, el("h3", {}, title));
  const place = el("div", { class: "chart-place" });
  if (shown.length > 1) figure.append(legend(shown));
  figure.append(place, el("figcaption", {}, summary), numbers(shown, x, y));
  let width = 0;
  new ResizeObserver(() => {
    const now = Math.round(place.clientWidth);
    if (!now || now === width) return;
    width = now;
    place.replaceChildren(draw(shown, { title, summary, x, y, across, range, width }));
  }).observe(place);
  return figure;
}

/** A figure with words in place of a chart. */
export function noChart(title, words) {
  return el("figure", { class: "chart" }, el("h3", {}, title), el("p", { class: "empty" }, words));
}

function draw(series, { title, summary, x, y, across, range, width }) {
  const all = series.flatMap((one) => one.points);
  const [x0, x1] = spread(all.map(([a]) => a), across);
  const [y0, y1] = spread(all.map(([, b]) => b), range);
  const right = width - EDGE.right;
  const low = HEIGHT - EDGE.bottom;
  const atX = (value) => EDGE.left + ((value - x0) / (x1 - x0)) * (right - EDGE.left);
  const atY = (value) => low - ((value - y0) / (y1 - y0)) * (low - EDGE.top);
  const image = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": `${title}. ${summary}` });
  for (const tick of ticks(y0, y1, 4)) {
    image.append(
      svg("line", { class: "grid", x1: EDGE.left, x2: right, y1: atY(tick), y2: atY(tick) }),
      svg("text", { class: "tick", x: EDGE.left - 7, y: atY(tick) + 4, "text-anchor": "end" }, short(tick)),
    );
  }
  for (const tick of ticks(x0, x1, Math.max(2, Math.floor(width / 110)))) {
    image.append(
      svg("line", { class: "axis", x1: atX(tick), x2: atX(tick), y1: low, y2: low + 4 }),
      svg("text", { class: "tick", x: atX(tick), y: low + 18, "text-anchor": "middle" }, short(tick)),
    );
  }
  image.append(
    svg("line", { class: "axis", x1: EDGE.left, x2: right, y1: low, y2: low }),
    svg("text", { class: "name", x: (EDGE.left + right) / 2, y: HEIGHT - 5, "text-anchor": "middle" }, x),
    svg("text", { class: "name", x: 0, y: 0, transform: `translate(12 ${(EDGE.top + low) / 2}) rotate(-90)`, "text-anchor": "middle" }, y),
  );
  series.forEach((one, index) => image.append(line(one, index, atX, atY)));
  return image;
}

function line(one, index, atX, atY) {
  const look = LOOKS[index % LOOKS.length];
  const path = one.points.map(([a, b], at) => `${at ? "L" : "M"}${atX(a).toFixed(1)} ${atY(b).toFixed(1)}`).join("");
  const group = svg("g", { class: `series s${index % LOOKS.length}` });
  group.append(svg("path", { class: "line", d: path, "stroke-dasharray": look.dash || null }));
  const every = Math.max(1, Math.ceil(one.points.length / 16));
  one.points.forEach(([a, b], at) => {
    if (at % every && at !== one.points.length - 1) return;
    const dot = mark(look.mark, atX(a), atY(b));
    dot.append(svg("title", {}, `${one.name}: ${short(a)}, ${short(b)}`));
    group.append(dot);
  });
  return group;
}

function mark(kind, x, y) {
  if (kind === "square") return svg("rect", { x: x - 3.5, y: y - 3.5, width: 7, height: 7 });
  if (kind === "diamond") return svg("path", { d: `M${x} ${y - 5}l5 5-5 5-5-5z` });
  return svg("circle", { cx: x, cy: y, r: 3.6 });
}

function legend(series) {
  return el("p", { class: "legend", "aria-hidden": "true" }, series.map((one, index) => {
    const look = LOOKS[index % LOOKS.length];
    const sample = svg("svg", { viewBox: "0 0 34 12", width: 34, height: 12 },
      svg("g", { class: `series s${index % LOOKS.length}` },
        svg("path", { class: "line", d: "M1 6H33", "stroke-dasharray": look.dash || null }), mark(look.mark, 17, 6)));
    return el("span", {}, sample, ` ${one.name}`);
  }));
}

/** The numbers behind a chart, folded away: what a screen reader or a copy needs. */
function numbers(series, x, y) {
  const xs = [...new Set(series.flatMap((one) => one.points.map(([a]) => a)))].sort((a, b) => a - b);
  const by = series.map((one) => new Map(one.points));
  const thin = Math.max(1, Math.ceil(xs.length / 60));
  const rows = xs.filter((_, at) => at % thin === 0 || at === xs.length - 1);
  return el("details", { class: "numbers" },
    el("summary", {}, "Numbers"),
    table([x, ...series.map((one) => (series.length > 1 ? one.name : y))],
      rows.map((a) => [short(a), ...by.map((points) => (points.has(a) ? short(points.get(a)) : "–"))])));
}

/** A table with a heading row; the first column names the row. */
export function table(head, rows, caption = "") {
  return el("div", { class: "scroll", role: "group", tabindex: "0", "aria-label": caption || "Table" },
    el("table", {},
      caption ? el("caption", { class: "unseen" }, caption) : null,
      el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, rows.map((row) => el("tr", {},
        row.map((cell, at) => (at ? el("td", {}, String(cell)) : el("th", { scope: "row" }, String(cell)))))))));
}

function spread(values, range) {
  let low = Math.min(...values, ...(range ?? []));
  let high = Math.max(...values, ...(range ?? []));
  // Values that differ only in their last digits have no ticks between them.
  if (high - low <= 1e-12 * Math.max(Math.abs(low), Math.abs(high))) { low -= Math.abs(low) * 0.1 || 0.5; high += Math.abs(high) * 0.1 || 0.5; }
  return [low, high];
}

function ticks(low, high, about) {
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) found.push(at * step);
  return found;
}

export function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 10_000) return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
  if (size !== 0 && size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

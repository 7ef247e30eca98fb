"""The pictures of docs/method.md, drawn as SVG: python scripts/site/pictures.py writes them into docs/images.

Plain shapes on a light card, so that they read the same on a light and on a dark page and in the repository. What looks
like data is computed (members that disagree, the pairs that Algorithm 2 picks), from a fixed seed.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[2] / "docs" / "images"
BLUE, RED, GREEN, PINK, INK, SOFT = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#222", "#888"
FONT = "font-family='system-ui,Segoe UI,Helvetica,Arial,sans-serif'"
SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
Point = tuple[float, float]


def picture(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """A card with a title for those who hear the page."""
    head = "".join(
        f"<marker id='{name}' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' orient='auto'>"
        f"<path d='M0 0L8 4L0 8z' fill='{colour}'/></marker>"
        for name, colour in (("tip", SOFT), ("tip-red", RED), ("tip-blue", BLUE))
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' {FONT} role='img'>"
        f"<title>{html.escape(title)}</title><defs>{head}</defs>"
        f"<rect width='{width}' height='{height}' rx='10' fill='#fbfbfd'/>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def text(at: Point, words: str, size: int = 14, colour: str = INK, anchor: str = "middle", weight: str = "400") -> str:
    style = f"font-size='{size}' fill='{colour}' text-anchor='{anchor}' font-weight='{weight}'"
    return f"<text x='{at[0]:g}' y='{at[1]:g}' {style}>{html.escape(words)}</text>"


def box(at: Point, size: Point, title: str, below: Sequence[str] = (), colour: str = BLUE) -> str:
    """A box around a title and a line or two."""
    x, y = at[0] - size[0] / 2, at[1] - size[1] / 2
    lines = [text((at[0], at[1] - 9 * len(below) + 5), title, 15, colour, weight="600")]
    lines += [text((at[0], at[1] - 9 * len(below) + 24 + 17 * n), line, 12) for n, line in enumerate(below)]
    frame = f"<rect x='{x:g}' y='{y:g}' width='{size[0]:g}' height='{size[1]:g}' rx='8'"
    return f"{frame} fill='white' stroke='{colour}' stroke-width='1.6'/>" + "".join(lines)


def path(points: Sequence[Point], colour: str = SOFT, width: float = 1.6, tip: str = "", dash: str = "") -> str:
    """A line through points; tip: the marker at its end."""
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    end = f" marker-end='url(#{tip})'" if tip else ""
    broken = f" stroke-dasharray='{dash}'" if dash else ""
    return f"<path d='M{steps}' fill='none' stroke='{colour}' stroke-width='{width:g}'{end}{broken}/>"


def dot(at: Point, radius: float, colour: str, opacity: float = 1.0) -> str:
    return f"<circle cx='{at[0]:.1f}' cy='{at[1]:.1f}' r='{radius:g}' fill='{colour}' fill-opacity='{opacity:g}'/>"


def ring() -> str:
    """Acting on the left, asking on the right, learning in the middle."""
    wide, high = 178, 74
    return picture(
        760,
        420,
        "The ring: the agent acts, asks and learns",
        [
            box((380, 60), (230, high), "Agent", ["ensembles of dynamics,", "reward and value; a policy"]),
            box((120, 150), (wide, high), "Environment", ["its reward is never shown"], SOFT),
            box((120, 330), (wide, high), "Replay", ["observations and actions,", "no reward"]),
            box((640, 330), (wide, high), "Question", ["two short clips:", "which is better?"], RED),
            box((640, 150), (wide, high), "Teacher", ["a person, a function,", "or a scripted one"], RED),
            path([(264, 74), (150, 108)], tip="tip"),
            text((176, 78), "action", 13, SOFT),
            path([(120, 188), (120, 289)], tip="tip"),
            text((128, 243), "observation", 13, SOFT, "start"),
            path([(210, 330), (547, 330)], RED, tip="tip-red"),
            text((380, 320), "pairs of clips are drawn,", 13, RED),
            text((380, 350), "and a few become questions", 13, RED),
            path([(640, 292), (640, 191)], RED, tip="tip-red"),
            path([(612, 112), (499, 74)], RED, tip="tip-red"),
            text((582, 78), "labels", 13, RED),
            path([(186, 292), (345, 101)], BLUE, tip="tip-blue"),
            text((290, 214), "learns how the world moves", 13, BLUE, "start"),
            text((290, 234), "and, from labels, what is good", 13, BLUE, "start"),
            text((380, 402), "Blue: every decision.  Orange: now and then, until the label budget is spent.", 12, SOFT),
        ],
    )


def optimism() -> str:
    """One imagined sequence of actions, and where each of the three bonuses comes from."""
    rng = np.random.default_rng(3)
    steps, parts = 6, []
    xs = 80 + 92.0 * np.arange(steps + 1)
    mean = 205 - 95 * np.sin(np.linspace(0, 1.5, steps + 1))
    spread = np.linspace(0, 1, steps + 1) ** 1.4
    for here, there in itertools.pairwise(range(steps + 1)):  # members disagree about one step at a time
        for offset in np.linspace(-1, 1, 5):
            guess = mean[there] + (34 * offset + rng.normal(0, 4)) * spread[there]
            parts.append(path([(xs[here], mean[here]), (xs[there], guess)], BLUE, 1, dash="3 3"))
            parts.append(dot((xs[there], guess), 2.2, BLUE))
    parts.append(path(list(zip(xs, mean, strict=True)), INK, 2.4))
    parts.append(path([(float(xs[0]) - 20, 240), (float(xs[-1]) + 20, 240)], SOFT, 1))
    for number, (x, y) in enumerate(zip(xs, mean, strict=True)):
        parts.append(dot((x, y), 5, INK))
        parts.append(text((x, 258), "now" if number == 0 else f"t+{number}", 12, SOFT))
        if number < steps:
            for bar, height in enumerate(20 + 14 * rng.random(3) + 4 * number):
                x0, low = x - 11 + 8 * bar, y - 14 - 36 * spread[number]
                parts.append(
                    f"<rect x='{x0:.1f}' y='{low - height:.1f}' width='6' height='{height:.1f}' fill='{GREEN}'/>"
                )
    end = (float(xs[-1]), float(mean[-1]))
    for value in (-38, -24, -6, 14, 30):
        parts.append(path([end, (end[0] + 58, end[1] + value)], PINK, 1.5))
        parts.append(dot((end[0] + 60, end[1] + value), 3.5, PINK))
    legend = [
        (BLUE, "dynamics members disagree about where this leads", f"{SIGMA} of the dynamics, weight λ_d"),
        (GREEN, "reward members disagree about what it is worth", f"{SIGMA} of the reward, weight λ_r"),
        (PINK, "value members disagree about what comes after", f"{SIGMA} of the value, weight λ_q"),
    ]
    for row, (colour, words, symbol) in enumerate(legend):
        y = 285 + 26 * row
        parts += [
            dot((60, y - 5), 6, colour),
            text((78, y), words, 14, INK, "start"),
            text((480, y), symbol, 13, SOFT, "start"),
        ]
    formula = f"score of a plan = what it is expected to bring + λ_r {SIGMA}^r + λ_d {SIGMA}^d + λ_q {SIGMA}^q"
    return picture(
        760,
        400,
        "Optimistic planning: uncertainty counts in favour of a plan",
        [*parts, text((380, 378), formula, 15, INK, weight="600")],
    )


def questions() -> str:
    """Algorithm 2 on computed pairs: mean against deviation of P(first preferred), and the pairs with the best sum."""
    rng = np.random.default_rng(1)
    gap = np.abs(rng.normal(0, 1.3, 260)) + rng.normal(0, 1, (5, 260)) * rng.gamma(2, 0.35, 260)
    first = 1 / (1 + np.exp(-gap))
    mean, std = np.maximum(first.mean(0), 1 - first.mean(0)), first.std(0)
    chosen = np.argsort(-(mean + std))[:12]
    left, top, wide, high, most = 90.0, 40.0, 560.0, 270.0, 0.4

    def at(p: float, s: float) -> Point:
        return left + (p - 0.5) * 2 * wide, top + high * (1 - s / most)

    bound = float((mean + std)[chosen].min())
    parts = [
        path([at(0.5, most), at(0.5, 0), at(1.0, 0)], INK, 1.2),
        path(
            [at(max(bound - most, 0.5), min(most, bound - 0.5)), at(min(bound, 1.0), max(bound - 1.0, 0.0))],
            RED,
            1.4,
            dash="6 4",
        ),
        text((left + wide / 2, top + high + 38), "how sure they are that the first clip is better: mean of P", 13),
        text((left, top - 14), "how far reward members disagree about it: deviation of P", 13, INK, "start"),
        *(text((at(p, 0)[0], top + high + 18), f"{p:g}", 12, SOFT) for p in (0.5, 0.75, 1.0)),
        *(text((left - 10, at(0.5, s)[1] + 4), f"{s:g}", 12, SOFT, "end") for s in (0.0, 0.2, 0.4)),
    ]
    picked = set(chosen.tolist())
    for number, (p, s) in enumerate(zip(mean.tolist(), std.tolist(), strict=True)):
        parts.append(
            dot(
                at(p, s),
                5 if number in picked else 3.2,
                RED if number in picked else SOFT,
                1 if number in picked else 0.45,
            )
        )
    parts += [
        text(
            (left + wide - 4, top + high + 60),
            "asked: the pairs beyond the line, where mean + deviation is highest",
            14,
            RED,
            "end",
            "600",
        ),
    ]
    return picture(760, 390, "Algorithm 2: which pairs are asked about", parts)


def labels() -> str:
    """A run over its decisions: random, then planning with sessions, then the policy."""
    left, right, base, top = 70.0, 720.0, 250.0, 70.0
    sessions = [0.14 + 0.065 * n for n in range(9)]

    def x(share: float) -> float:
        return left + share * (right - left)

    phases = [
        (0.0, 0.1, SOFT, "random"),
        (0.1, 0.68, BLUE, "plans, optimistically"),
        (0.68, 1.0, GREEN, "acts by its policy"),
    ]
    parts = []
    for begin, end, colour, words in phases:
        parts.append(
            f"<rect x='{x(begin):.1f}' y='{base + 22:g}' width='{x(end) - x(begin) - 2:.1f}' height='30' rx='4' "
            f"fill='{colour}' fill-opacity='.16'/>"
        )
        parts.append(
            text(((x(begin) + x(end)) / 2, base + 42), words, 13 if end - begin > 0.15 else 12, colour, weight="600")
        )
    stairs, height = [(x(0), base)], base
    for share in sessions:
        stairs.append((x(share), height))
        height -= (base - top) / len(sessions)
        stairs.append((x(share), height))
        parts.append(path([(x(share), base + 14), (x(share), base + 4)], RED, 1.6, "tip-red"))
    stairs.append((x(1.0), height))
    parts += [
        path([(x(0), top), (x(1), top)], SOFT, 1, dash="5 4"),
        text((x(1), top - 10), "label budget, N", 13, SOFT, "end"),
        path(stairs, RED, 2.4),
        path([(x(0), base), (x(1), base)], INK, 1.2),
        text((x(0) + 6, top + 20), "labels used", 13, RED, "start", "600"),
        text((x(0.43), base - 34), "each session: K questions, every F decisions", 13, RED, "start"),
        text((x(1), base + 76), "decisions →", 13, SOFT, "end"),
        text((x(0), base + 76), "learning goes on at every decision, to the end", 13, SOFT, "start"),
    ]
    return picture(760, 350, "When labels are spent", parts)


PICTURES: Mapping[str, Callable[[], str]] = {
    "method-ring.svg": ring,
    "method-optimism.svg": optimism,
    "method-questions.svg": questions,
    "method-labels.svg": labels,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")

"""One HTML page that needs nothing else: no network, no scripts, any width, light and dark."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["MARK", "Section", "as_page", "callout", "code", "image", "items", "paragraph", "row", "video"]

MARK = '<meta name="generator" content="ubp2 report">'  # how a later report knows that the page may be replaced

_CODE = re.compile(r"`([^`\n]+)`")
_STYLE = """
:root { color-scheme: light dark; --page: #fcfcfb; --ink: #1c1e21; --soft: #5b6068; --line: #d9dce1; --tint: #eef3f8;
  --card: #ffffff; --accent: #0b5fa5; --warn: #fff6e0; --warn-line: #d99a1c; }
@media (prefers-color-scheme: dark) { :root { --page: #16181b; --ink: #e7e8ea; --soft: #a3a8b0; --line: #383c43;
  --tint: #20272f; --card: #1c1f23; --accent: #7db8ee; --warn: #2e2716; --warn-line: #b98a2a; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.55;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main, header, footer { max-width: 82rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2rem; }
h1 { font-size: clamp(1.5rem, 1.1rem + 1.8vw, 2.2rem); line-height: 1.2; margin: 0 0 .4rem; text-wrap: balance; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .8rem; padding-top: .4rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.6rem 0 .5rem; }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
a { color: var(--accent); }
a:focus-visible, summary:focus-visible, .frame:focus-visible, video:focus-visible { outline: 2px solid var(--accent);
  outline-offset: 2px; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--card); padding: .3rem; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.lead, .note, figcaption, footer { color: var(--soft); }
.lead { margin: 0 0 1rem; }
.note, figcaption { font-size: .86rem; margin: .35rem 0; }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; padding: 0; margin: 1rem 0 0; list-style: none; }
.callout { background: var(--warn); border-left: 4px solid var(--warn-line); border-radius: 4px;
  padding: .7rem 1rem; margin: 1rem 0; max-width: 50rem; }
.callout p { margin: .3rem 0; }
.frame { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; background: var(--card);
  margin: 0 0 .4rem; max-width: 100%; width: fit-content; }
.row { display: flex; flex-wrap: wrap; gap: 0 2.2rem; align-items: flex-start; }
.row > * { max-width: 100%; }
.row > .table { width: fit-content; }
.row > .table > p { width: min-content; min-width: max(100%, min(20rem, 100vw - 2.5rem)); }
.table > .note { max-width: 60rem; }
table { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; font-size: .85rem; }
.caption { font-weight: 600; margin: 1.1rem 0 .4rem; font-size: .95rem; max-width: none; }
th, td { padding: .36rem .5rem; text-align: right; border-top: 1px solid var(--line); white-space: nowrap; }
sup { line-height: 0; }
td:has(.range) { white-space: normal; }
.range { display: inline-block; white-space: nowrap; color: var(--soft); }
span.long { display: block; white-space: normal; min-width: 18rem; max-width: 44rem; text-align: left; }
thead th { font-weight: 600; color: var(--soft); border-top: 0; border-bottom: 1px solid var(--line);
  vertical-align: bottom; white-space: normal; }
tbody tr:first-child th, tbody tr:first-child td { border-top: 0; }
tr > th:first-child { text-align: left; position: sticky; left: 0; background: var(--card); z-index: 1;
  border-right: 1px solid var(--line); }
tr > th.long { white-space: normal; min-width: 9rem; max-width: 15rem; }
tbody th { font-weight: 600; }
tr.paper th, tr.paper td, tr.difference th, tr.difference td { border-top: 0; color: var(--soft); font-weight: 400;
  font-size: .84rem; padding-top: 0; }
tr.paper th:first-child, tr.difference th:first-child { padding-left: 1.6rem; }
.summary { background: var(--tint); }
figure { margin: 1.2rem 0; width: fit-content; max-width: 100%; }
figcaption { width: min-content; min-width: 100%; }
figure .frame { background: #ffffff; padding: .5rem; }
figure img { display: block; height: auto; }
.clips { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: 1rem; }
.clips figure { margin: 0; width: auto; }
video { width: 100%; border-radius: 6px; background: #000; display: block; }
pre { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem;
  font-size: .84rem; white-space: pre-wrap; overflow-wrap: anywhere; max-width: 100%; }
summary { cursor: pointer; }
p code { font-size: .92em; }
footer { padding-bottom: 3rem; font-size: .86rem; }
@media print { nav, .skip { display: none; } .frame { overflow: visible; } h2 { break-after: avoid; } }
"""


class Section(NamedTuple):
    """A part of the page under a heading of its own; without content it is left out."""

    name: str  # in links
    title: str
    parts: Sequence[str]  # HTML


def as_page(title: str, lead: str, before: Sequence[str], sections: Iterable[Section], footer: str) -> str:
    """The whole page; `before` is HTML that stands above the list of sections."""
    shown = [section for section in sections if any(section.parts)]
    links = "".join(f'<li><a href="#{part.name}">{html.escape(part.title)}</a></li>' for part in shown)
    body = "".join(
        f'<section aria-labelledby="{part.name}"><h2 id="{part.name}">{html.escape(part.title)}</h2>'
        f"{''.join(part.parts)}</section>"
        for part in shown
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{MARK}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{html.escape(title)}</title>'
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head>'
        f'<body><a class="skip" href="#content">To the results</a>'
        f'<header><h1>{html.escape(title)}</h1><p class="lead">{html.escape(lead)}</p>{"".join(before)}'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>'
        f'<main id="content">{body}</main><footer><p>{html.escape(footer)}</p></footer></body></html>\n'
    )


def paragraph(text: str, kind: str = "") -> str:
    """Plain text as a paragraph; what stands between backticks is code."""
    inside = _CODE.sub(r"<code>\1</code>", html.escape(text))
    return f"<p{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{inside}</p>"


def callout(sentences: Sequence[str]) -> str:
    """Sentences that nobody should miss; nothing without any."""
    return f'<div class="callout" role="note">{"".join(map(paragraph, sentences))}</div>' if sentences else ""


def items(texts: Sequence[str]) -> str:
    """A list; nothing without any."""
    return f"<ul>{''.join(f'<li>{html.escape(text)}</li>' for text in texts)}</ul>" if texts else ""


def code(lines: Sequence[str], title: str) -> str:
    """Lines to copy, folded away where they are many; nothing without any."""
    if not lines:
        return ""
    text = f"<pre><code>{html.escape(chr(10).join(lines))}</code></pre>"
    opened = " open" if len(lines) <= 8 else ""
    return f"<details{opened}><summary>{html.escape(title)}</summary>{text}</details>"


def row(parts: Sequence[str]) -> str:
    """Things side by side where there is room; nothing without any."""
    return f'<div class="row">{"".join(parts)}</div>' if parts else ""


def image(data: bytes, kind: str, alt: str, caption: str, files: Sequence[str], inches: float) -> str:
    """A figure that shrinks with the screen to what can still be read, then scrolls; a small one shrinks to fit."""
    source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    links = ", ".join(f'<a href="{html.escape(name)}">{name.rpartition(".")[2].upper()}</a>' for name in files)
    width, least = round(inches * 108), 0 if inches <= 5.5 else round(inches * 80)
    label = html.escape(alt, quote=True)
    return (
        f'<figure><div class="frame" role="group" tabindex="0" aria-label="{label}">'
        f'<img src="{source}" alt="{label}" style="width:{width}px;max-width:{f"max(100%,{least}px)"}"></div>'
        f"<figcaption>{html.escape(caption)} {links}</figcaption></figure>"
    )


def video(data: bytes, caption: str) -> str:
    """A clip that starts when it is asked to."""
    source = f"data:video/mp4;base64,{base64.b64encode(data).decode()}"
    label = html.escape(caption, quote=True)
    return (
        f'<figure><video controls muted loop playsinline preload="metadata" aria-label="{label}" src="{source}">'
        f"</video><figcaption>{html.escape(caption)}</figcaption></figure>"
    )

"""Hook of mkdocs: source files that pages name become pages of the site, and the names become links.

Pages of docs/ are read in two places. In the repository, `[text](../src/ubp2/agents/sac.py)` works as it stands; on the
site there is no such file. So every file of the repository that a page links to, or names in code type as
`training/loop.py` or `training/loop.py:train`, gets a page below source/. Some pages of the repository outside docs/
are pages of the site too (`INCLUDED`), and their links lead on it.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "ubp2"
FENCED = re.compile(r"^(?:```.*?^```[ \t]*$|#+ [^\n]*$)", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(
    r"\[(?P<text>(?:`[^`]*`|[^\]`])*)\]\((?P<link>[^)\s]+)\)|`(?P<path>[\w./-]+)(?::(?P<name>\w+))?`"
)
LINE = re.compile(r'id="(__codelineno-[\d-]+)"')
INCLUDED = {
    "examples.md": ROOT / "examples" / "README.md",
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "changelog.md": ROOT / "CHANGELOG.md",
}
TEXT = (".py", ".md", ".yaml", ".yml", ".toml", ".sh", "Makefile")


class Target(NamedTuple):
    """A file or folder of the repository, and what in it is meant: a name of Python, or a heading as links have it."""

    path: Path
    name: str | None = None
    heading: str = ""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the included pages, and a page for every source file that some page names."""
    for name, path in INCLUDED.items():
        files.append(File.generated(config, name, content=path.read_text(encoding="utf-8")))
    wanted = {
        target.path
        for file in files.documentation_pages()
        for piece, prose in _pieces(file.content_string)
        if prose
        for match in REFERENCE.finditer(piece)
        if (target := _target(match, file.src_uri)) and _page_of(target.path).startswith("source/")
    }
    for path in sorted(wanted | {child for folder in wanted if folder.is_dir() for child in _children(folder)}):
        name = path.relative_to(ROOT).as_posix()
        if path.is_dir() or path.name.endswith(TEXT):
            files.append(File.generated(config, _page_of(path), content=_content(path, name)))
        else:
            files.append(File.generated(config, f"source/{name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links and names of source files point to their pages."""
    if page.file.src_uri.startswith("source/"):
        return markdown
    link = partial(_linked, page=page.file.src_uri)
    return "".join(REFERENCE.sub(link, piece) if prose else piece for piece, prose in _pieces(markdown))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Tell mkdocs of the lines of code, which it does not take for places that a link can lead to."""
    if page.file.src_uri.startswith("source/"):
        page.present_anchor_ids = (page.present_anchor_ids or set()) | set(LINE.findall(html))
    return html


def _pieces(markdown: str) -> Iterator[tuple[str, bool]]:
    """The text of a page in turn: what stands in fences and headings, in which nothing is linked, and the rest."""
    at = 0
    for match in FENCED.finditer(markdown):
        yield markdown[at : match.start()], True
        yield match.group(), False
        at = match.end()
    yield markdown[at:], True


def _target(match: re.Match[str], page: str) -> Target | None:
    """What of the repository a link or a name in code type means; None: nothing that is there."""
    if match["link"]:
        link, _, heading = match["link"].partition("#")
        path = Path(os.path.normpath(INCLUDED.get(page, ROOT / "docs" / page).parent / link))
        outside = "://" not in link and link and (page in INCLUDED or not _in_docs(path))
        found = outside and path.is_relative_to(ROOT) and path.exists()
        return Target(path, heading=heading and f"#{heading}") if found else None
    if "." not in posixpath.basename(match["path"]):
        return None
    found = [ROOT / match["path"], PACKAGE / match["path"]]
    if match["path"].endswith(".py") and "/" not in match["path"]:
        found = [path for path in PACKAGE.rglob(match["path"])]
        found = found if len(found) == 1 else []  # a name that several files have means none of them
    return next((Target(path, match["name"]) for path in found if path.is_file()), None)


def _linked(match: re.Match[str], page: str) -> str:
    target = _target(match, page)
    if target is None or f"docs/{page}" == match["path"]:
        return match.group()
    address = posixpath.relpath(_page_of(target.path), posixpath.dirname(page) or ".") + _anchor(target)
    return f"[{match['text'] or match.group()}]({address})"


def _in_docs(path: Path) -> bool:
    return path.is_relative_to(ROOT / "docs")


def _page_of(path: Path) -> str:
    """The page of the site that shows a file or folder of the repository."""
    if _in_docs(path):
        return path.relative_to(ROOT / "docs").as_posix()
    included = [page for page, source in INCLUDED.items() if source == path]
    if included:
        return included[0]
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return f"source/{name}/contents.md"
    return f"source/{name}.md" if path.name.endswith(TEXT) else f"source/{name}"


def _anchor(target: Target) -> str:
    """The line in which what is meant is defined, or the heading."""
    if target.name is None or target.path.suffix != ".py":
        return target.heading
    for number, line in enumerate(target.path.read_text(encoding="utf-8").splitlines(), 1):
        if re.match(rf"(?:def|class) {target.name}\b|{target.name}\b.*=", line):
            return f"#__codelineno-0-{number}"
    return ""


def _children(folder: Path) -> list[Path]:
    files = (path for path in folder.iterdir() if path.suffix in (".py", ".md", ".yaml"))
    return sorted(path for path in files if path.stat().st_size)  # an empty __init__.py has nothing to show


def _content(path: Path, name: str) -> str:
    head = "---\nsearch: {exclude: true}\nhide: [navigation, toc]\n---\n\n" + f"# `{name}`\n\n"
    if path.is_dir():
        return head + "".join(f"- [`{child.name}`]({child.name}.md)\n" for child in _children(path))
    language = {".py": "python", ".md": "markdown", ".sh": "bash"}.get(path.suffix, "yaml")
    return f'{head}~~~~~{language} linenums="1"\n{path.read_text(encoding="utf-8")}\n~~~~~\n'

"""The documentation site builds without a warning, every link leads somewhere, nothing is fetched from elsewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import BLOCK, ROOT, pages

LOADS = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """The links and the places to which links can lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.places: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.places.add(value)
            elif value and (tag, name) in LOADS:
                self.loads.add(value)
            elif value and (tag, name) == ("a", "href"):
                self.links.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """Every page of the site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site").resolve()
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],  # --quiet would hide warnings
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}


def test_every_link_leads_somewhere(site: dict[Path, Page]) -> None:
    (root,) = (path.parent for path in site if path.name == "404.html")
    broken = []
    for path, page in site.items():
        for link in page.links | page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            there = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            if there.is_dir():
                there /= "index.html"
            if not there.is_file() or (there in site and unquote(parts.fragment) not in site[there].places):
                broken.append(f"{path.relative_to(root)}: {link}")
    assert len(site) > 100 and not broken, "\n".join(broken)


def test_nothing_is_fetched_from_elsewhere(site: dict[Path, Page]) -> None:
    foreign = {load for page in site.values() for load in page.loads if urlsplit(load).netloc}
    assert not foreign, f"pages load {foreign}: the site must work offline, and tell nobody who reads it"


def test_every_command_and_setting_has_its_line(site: dict[Path, Page]) -> None:
    from ubp2.terminal.cli import COMMANDS

    by_name = {path.name: path for path in site if path.parent.name == "reference"}
    text = by_name["cli.html"].read_text(encoding="utf-8")
    assert {f"ubp2-{name}" for name in COMMANDS} <= site[by_name["cli.html"]].places
    assert "--fake-preempt" in text and "tyro.MISSING" not in text
    settings = by_name["settings.html"].read_text(encoding="utf-8").replace("<wbr>", "")
    for name in ("planner.horizon", "sac.surf_ratio", "visual.keep_frames", "preferences.candidates_from", "steps"):
        assert f"<code>{name}</code>" in settings, name


@pytest.mark.parametrize("name", sorted(pages()))
def test_links_work_in_the_repository_too(name: str) -> None:
    """Where pages are read without the site; those that only the site makes are left out."""
    made = ("reference/cli.md", "reference/settings.md")
    text = BLOCK.sub("", pages()[name])
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    for link in links:
        parts = urlsplit(link)
        if parts.scheme or parts.path.endswith(made) or (parts.path == "settings.md" and "reference" in name):
            continue
        there = Path(os.path.normpath((ROOT / name).parent / unquote(parts.path))) if parts.path else ROOT / name
        assert there.exists(), f"{name}: {link}"
        if parts.fragment and there.suffix == ".md":
            assert parts.fragment in headings(there), f"{name}: {link}"


@cache
def headings(page: Path) -> set[str]:
    """The anchors that a Markdown page has, as repositories show it."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_pictures_are_those_of_the_script() -> None:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "scripts" / "site" / "pictures.py")
    assert spec and spec.loader
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    for name, draw in pictures.PICTURES.items():
        assert (pictures.FOLDER / name).read_text(encoding="utf-8") == draw(), "run: python scripts/site/pictures.py"

"""Fixtures of the page: clips, a stub server and a browser, made once. `conftest.py` imports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.labelling.browser import Person, Server, find_chromium
from tests.labelling.pictures import write_clips


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    write_clips(folder)
    return folder


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("stub")
    (folder / "clips").symlink_to(clips)
    found = Server(folder)
    yield found
    found.kill()


@pytest.fixture
def server(stub: Server) -> Server:
    stub.begin()
    return stub


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def person(chromium: Any, server: Server) -> Iterator[Callable[..., Person]]:
    """Somebody with a browser profile of their own, or another tab of `beside`. The page may complain of nothing."""
    people: list[Person] = []

    def sit_down(beside: Person | None = None, **options: Any) -> Person:
        options = {"viewport": {"width": 1280, "height": 800}, **options}
        context = beside.page.context if beside else chromium.new_context(**options)
        people.append(Person(context.new_page(), server.url))
        return people[-1]

    yield sit_down
    complaints = [text for one in people for text in one.complaints]
    for one in people:
        one.page.context.close()
    assert not complaints, complaints

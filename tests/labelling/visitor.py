"""A browser's requests without a browser, straight to the application."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import httpx

from tests.labelling.conftest import Place
from ubp2.labelling.app import Page
from ubp2.labelling.rates import Rates
from ubp2.labelling.security import Guard, known_names

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def _finished(work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a coroutine, from a thread of its own: Playwright leaves a loop running in that of the tests."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, work, *arguments).result()


class Browser:
    """Calls the application in this process, as a browser at http://localhost:8642 would."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.transport = httpx.ASGITransport(app=guard, client=("10.0.0.7", 5))  # type: ignore[arg-type]

    async def _send(self, method: str, url: str, **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=self.transport, base_url="http://localhost:8642") as client:
            return await client.request(method, url, **options)

    def get(self, url: str, **options: Any) -> httpx.Response:
        return _finished(lambda: self._send("GET", url, **options))

    def post(self, url: str, body: Any = None, **options: Any) -> httpx.Response:
        if body is not None:
            options["json"] = body
        return _finished(lambda: self._send("POST", url, **options))

    def raw(self, path: str) -> tuple[int, bytes]:
        """A GET whose path no client has tidied up."""
        sent: list[dict[str, Any]] = []
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": [(b"host", b"localhost")], "client": ("10.0.0.7", 5),
            "server": ("localhost", 8642), "scheme": "http", "root_path": "",
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        _finished(self.guard, scope, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


def browser(place: Place, token: str | None = None, *, of_a_name: Rates | None = None, **options: Any) -> Browser:
    page = Page(place.desk, {"run": "ours", "env": "toy/reach", "instruction": SCRIPT, "title": "run"})
    page.rates = of_a_name or page.rates
    return Browser(Guard(page.build(), known_names("127.0.0.1"), token, **options))

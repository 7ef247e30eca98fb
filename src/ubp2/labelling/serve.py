"""The label server as a thread of any process: the trainer's, or that of `ubp2 label`."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ubp2 import signals
from ubp2.errors import UserError
from ubp2.labelling.gallery import ClipSource
from ubp2.labelling.options import PORT, TOKEN_VARIABLE, TRAINER_VARIABLE, Label, check, token
from ubp2.labelling.security import Guard, check_token, is_loopback, known_names, trainer_token
from ubp2.storage import locks
from ubp2.storage.database import disk_errors
from ubp2.storage.runs import HALF_MADE, Run

if TYPE_CHECKING:
    from ubp2.labelling.desk import Rules
    from ubp2.labelling.reception import Opened
from ubp2.terminal.progress import say

__all__ = ["TOKEN_VARIABLE", "Served", "default_instruction", "label", "open_browser", "require_place", "start"]

FURTHER = 20  # ports that are tried after one that is taken
STOP_SECONDS = 10.0
_HOST, _PORT = (f"--{name} (ubp2 train: --teacher.{name})" for name in ("host", "port"))


@dataclass
class Served:
    """A label server at work."""

    url: str  # with the token, if there is one
    figures: str | None  # the same without a name, which phones often cannot look up; None: it has none
    port: int
    token: str | None
    trainer_token: str | None  # for a trainer on another machine, where there may be one
    progress: Callable[[], dict[str, Any]]
    _server: Any
    _thread: threading.Thread
    _release: Callable[[], None]

    def stop(self) -> None:
        """Answer what is being asked, then close everything; a second time does nothing."""
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)
        self._release()

    @property
    def alive(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive()


def start(
    folder: Path | str,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    token: str | None = None,
    names: Iterable[str] = (),
    overlap: int = 1,
    again: float = 0.05,
    show_agreement: bool = True,
    instruction: str | None = None,
    clips: ClipSource | None = None,
    remote: bool = False,
) -> Served:
    """Serve the page of the run in `folder` from a thread, and return when it can be opened.

    remote: the trainer is on another machine, and the folder becomes a double of its run when it connects.
    """
    import uvicorn

    from ubp2.labelling.desk import Rules
    from ubp2.labelling.reception import Reception
    from ubp2.labelling.tickets import page_name, run_secret

    folder = Path(folder)
    if remote:
        _make_room(folder)
    else:
        Run.open(folder)  # says so where it is none
    secret = run_secret(folder / "label.key", folder)
    token = check_token(host, token, secret)
    rules = Rules(overlap, again, show_agreement)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, locks.take(folder, "label.lock", "the label page of"))
        listening = stack.enter_context(_listen(host, port))

        def open_page(alive: Callable[[], bool] | None = None) -> Opened:
            return _open_page(folder, secret, rules, instruction, clips, alive)

        if remote:
            app = reception = Reception(folder, page_name(secret), open_page)
            progress, close = reception.progress, reception.close
        else:
            desk, app, close = open_page()
            progress = desk.progress
        stack.callback(close)
        trainer = trainer_token(secret) if remote else None
        guard = Guard(app, known_names(host, names), token, trainer, _all_addresses(host))
        server = uvicorn.Server(_uvicorn_config(guard))
        thread = threading.Thread(target=server.run, args=([listening],), name="label-server", daemon=True)
        thread.start()
        stack.callback(setattr, server, "should_exit", True)
        _wait_until(lambda: server.started or not thread.is_alive())
        if not server.started:
            raise UserError(f"the label server did not start on {host}; look at the messages above")
        port = listening.getsockname()[1]
        url = _url(host, port, token)
        figures = _url(own, port, token) if _all_addresses(host) and (own := _own_address()) else None
        return Served(url, figures, port, token, trainer, progress, server, thread, stack.pop_all().close)
    raise AssertionError("unreachable")


def require_place(host: str, port: int, token: str | None) -> None:
    """Refuse an address or a token with which `start` would fail, before there is a run to serve."""
    check_token(host, token, b"")
    _listen(host, port).close()


def _make_room(folder: Path) -> None:
    """A folder for the double of a run that is trained elsewhere: a new one, or that of an earlier such page."""
    with disk_errors(folder, None):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "config.yaml").exists() and any(path.name not in HALF_MADE for path in folder.iterdir()):
            raise UserError(f"{folder} holds something else; --remote needs a new folder, or one that it made earlier")


def _open_page(
    folder: Path,
    secret: bytes,
    rules: Rules,
    instruction: str | None,
    clips: ClipSource | None,
    alive: Callable[[], bool] | None,
) -> Opened:
    """The desk and the application of the run in `folder`, and what closes them."""
    from ubp2.labelling.app import Page
    from ubp2.labelling.desk import Desk
    from ubp2.labelling.leases import Leases
    from ubp2.labelling.tickets import Tickets, page_name
    from ubp2.preference.store import LabelStore

    run = Run.open(folder)
    config = run.config
    rules = dataclasses.replace(rules, budget=config.preferences.budget, steps=config.steps)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(LabelStore(run.labels))
        clips = _clips(run) if clips is None else clips
        stack.callback(clips.close)
        desk = Desk(folder, store, clips, Tickets(secret), Leases(folder / "leases.json"), rules, alive)
        session = {
            "run": page_name(secret),  # what a browser keeps for us, it keeps apart
            "env": config.env,
            "title": folder.resolve().name,
            "instruction": instruction or config.teacher.instruction or default_instruction(config.env),
            "show_agreement": rules.show_agreement,
        }
        return desk, Page(desk, session).build(), stack.pop_all().close
    raise AssertionError("unreachable")


def _clips(run: Run) -> ClipSource:
    from ubp2.labelling.clips import Clips

    return Clips(run.episodes, run.config, run.folder / "clips", drawn=bool(run.info().get("custom_environment")))


def _uvicorn_config(app: Any) -> Any:
    import uvicorn

    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who the client is, is not for the client to say
        lifespan="off",
        ws="none",
        limit_concurrency=800,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
    )


def _listen(host: str, port: int) -> socket.socket:
    """A socket on this port, or on the next that is free."""
    last = None
    for candidate in [port] if port == 0 else range(port, min(port + FURTHER, 65535) + 1):
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, candidate, type=socket.SOCK_STREAM)[0]
        except (socket.gaierror, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise UserError(f"{host} is no address of this machine ({why}); try 127.0.0.1, with {_HOST}") from None
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(1024)
        except OSError as error:
            sock.close()
            last = error
            if error.errno != errno.EADDRINUSE:
                break
            continue
        return sock
    if last is not None and last.errno == errno.EADDRINUSE:
        raise UserError(f"the ports {port} to {port + FURTHER} of {host} are all taken; name another with {_PORT}")
    raise UserError(
        f"cannot listen on {host} port {port}: {last}; name another with {_HOST}, or with {_PORT}"
    ) from last


def _all_addresses(host: str) -> bool:
    return host in ("0.0.0.0", "::", "")


def _url(host: str, port: int, token: str | None) -> str:
    name = f"[{host}]" if ":" in host else host
    name = socket.gethostname() if _all_addresses(host) else name
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")


def _own_address() -> str | None:
    """The address of this machine in its network, in figures; None: it is in none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        sock.connect(("192.0.2.1", 9))  # sends nothing: only asks which way it would go
        return sock.getsockname()[0]
    return None


def _wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


def default_instruction(env: str) -> str:
    """What to look for: in words of the environment's own, else from the name of the task."""
    from ubp2.envs.registry import INSTRUCTIONS
    from ubp2.envs.visual import base_id
    from ubp2.labelling.dataset import NAME

    if env == NAME:  # of files, whose task has no name
        return "Which of the two clips is better?"
    if own := INSTRUCTIONS.get(base_id(env)):
        return own
    task = env.rpartition("/")[2].replace("-", " ").replace("_", " ")
    return f"The task is: {task}. Which of the two clips is closer to doing it well?"


def label(args: Label) -> tuple[dict[str, Any], str]:
    """Serve until a signal comes: what `ubp2 label` answers, as data and as text."""
    check(args)
    if args.dataset:
        from ubp2.labelling.dataset import prepare

        prepare(args.dataset, args.run, pairs=args.pairs, length=args.length)
    stop = threading.Event()  # Ctrl-C or SIGTERM is how labelling ends, and no error
    with signals.heard(lambda _: stop.set()):
        served = start(
            args.run,
            host=args.host,
            port=args.port,
            token=token(args),
            names=args.known_as,
            overlap=args.overlap,
            again=args.again,
            show_agreement=args.agreement,
            instruction=args.instruction,
            remote=args.remote,
        )
        try:
            for line in _greeting(args, served):
                say(line)
            if args.browser and is_loopback(args.host):
                open_browser(served.url)
            while served.alive and not stop.wait(0.5):
                pass
            progress = served.progress()
        finally:
            served.stop()
    url = served.url.partition("?")[0]
    text = f"{progress['answered']} of {progress['asked']} questions have a label"
    return {"run": args.run, "url": url, "port": served.port, **progress}, text


def _greeting(args: Label, served: Served) -> list[str]:
    lines = [f"label page: {served.url}"]
    if served.figures:
        lines.append(f"the same in figures: {served.figures}")
    if args.port and served.port != args.port:
        lines.append(f"(port {args.port} is taken)")
    if served.token:
        lines.append("whoever has this address can answer; it is shown this once")
    if served.trainer_token:
        address = served.url.partition("?")[0].rstrip("/")
        lines.append(f"on the machine that trains: export {TRAINER_VARIABLE}={served.trainer_token}")
        lines.append(f"                            ubp2 train --env ENV --teacher {address}")
    return [*lines, "Ctrl-C ends it; answers are saved as they come"]


def open_browser(url: str) -> bool:
    """Open the page where there is a screen to open it on; a text browser would take over the terminal."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    if sys.platform.startswith("linux") and not shutil.which("xdg-open") and not os.environ.get("BROWSER"):
        return False
    with contextlib.suppress(webbrowser.Error, OSError):
        return webbrowser.open(url)
    return False

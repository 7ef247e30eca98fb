"""The page of a run whose teacher is people: served by the process that trains, or reached on another machine."""

from __future__ import annotations

import contextlib
import os

from ubp2.config.schema import Config
from ubp2.envs.workers import Factory
from ubp2.errors import UserError
from ubp2.labelling.courier import Courier, check_address
from ubp2.preference.teachers import Teacher
from ubp2.terminal.progress import say
from ubp2.training.crew import Crew

__all__ = ["require_one_run", "serve_page"]


def require_one_run(config: Config, seeds: int, teacher: Teacher | None) -> None:
    """People answer one run at a time, in nobody else's name, and where their page can be served."""
    if config.teacher.name != "human" or config.ceiling:
        return
    if config.teacher.url is not None:
        check_address(config.teacher.url)
        if config.visual.keep_frames:
            raise UserError(
                "--visual.keep-frames keeps what was seen on this machine, and a page elsewhere cannot show it; "
                "serve the page here (--teacher human --teacher.host 0.0.0.0), or leave out --visual.keep-frames"
            )
    if seeds > 1:
        raise UserError(f"--teacher human is for one run, got --seeds {seeds}; people cannot answer several at once")
    if teacher is not None:
        raise UserError("config.teacher is human and teacher=... was given, too; leave out one of them")
    if config.teacher.url is None and config.teacher.serve and config.teacher.port in range(2**16):  # else told later
        from ubp2.labelling import serve

        serve.require_place(config.teacher.host, config.teacher.port, os.environ.get(serve.TOKEN_VARIABLE) or None)


def serve_page(stack: contextlib.ExitStack, crew: Crew, env: Factory | None) -> None:
    """Where people are the teacher, serve their page from a thread, or connect to it elsewhere, and say where it is."""
    teacher, run = crew.config.teacher, crew.members[0].run
    if not crew.people or crew.config.ceiling:
        return
    if teacher.url is not None:
        courier = Courier(run, teacher.url, crew.envs.spec._asdict(), crew.progress.note)
        courier.start(patient=bool(run.info()["resumed"]))
        stack.callback(courier.stop)
        say(f"people compare clips at: {teacher.url}")
        return
    if not teacher.serve:
        return
    from ubp2.labelling import serve  # the web server: only where there is a page
    from ubp2.labelling.clips import Clips

    clips = None if env is None else Clips(run.episodes, run.config, run.folder / "clips", env=env)
    served = serve.start(
        run.folder,
        host=teacher.host,
        port=teacher.port,
        token=os.environ.get(serve.TOKEN_VARIABLE) or None,
        instruction=teacher.instruction,
        clips=clips,
    )
    stack.callback(served.stop)
    say(f"compare clips at: {served.url}")  # also where progress is not shown
    if served.figures:
        say(f"the same in figures: {served.figures}")
    if teacher.browser:
        serve.open_browser(served.url)

"""What `ubp2 theory NAME` does with its options: run the study, write its files, answer with data and text."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ubp2.errors import UserError
from ubp2.terminal.flags import words
from ubp2.theory import options

__all__ = ["answer", "answered", "write"]


def answer(args: options.Theory) -> tuple[dict[str, Any], str]:
    """Data for JSON and text for people."""
    what: Any = args.what
    options.check(what)
    if isinstance(what, options.Report):
        from ubp2.theory import report

        folder = _made(what.out or report.FOLDER)
        data = report.make(what, folder)
        return {"page": folder / report.PAGE, "studies": data}, f"report: {folder / report.PAGE}"
    if what.out:
        _made(what.out)
    findings = _studied(what)
    data = findings.data(words("theory", what))
    if what.out:
        write(data, what.out, findings.study)
    return data, findings.text()


def answered(what: Any) -> dict[str, Any]:
    """The data of one study."""
    return _studied(what).data(words("theory", what))


def _studied(what: Any) -> Any:
    """Each study is a module with the name of its options."""
    name = type(what).__name__.lower()
    if name == "ensembles":
        from ubp2.system import prepare_jax

        prepare_jax()
    return importlib.import_module(f"ubp2.theory.{name}").study(what)


def write(data: Mapping[str, Any], folder: Path, name: str) -> None:
    """NAME.json and NAME.png."""
    from ubp2.theory.figures import draw, save

    (folder / f"{name}.json").write_text(json.dumps(data) + "\n", encoding="utf-8")
    save(draw(data["study"], data["curves"]), folder / f"{name}.png")


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)  # before the work, which a folder that cannot be made would waste
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"--out is a folder, and {folder} is a file or lies in one; name another") from None
    return folder

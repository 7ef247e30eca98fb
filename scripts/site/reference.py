"""Hook of mkdocs: writes the pages about commands and settings from the parsers and presets themselves.

So they cannot tell anything but what `ubp2 COMMAND --help` tells. Nothing heavy is imported: help never needs jax.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tyro
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))  # the package beside this file, installed or not

from ubp2.config.presets import PRESETS, preset
from ubp2.config.schema import Config
from ubp2.terminal.cli import COMMANDS

# One environment for all columns: a task of the paper, because the preset `paper` knows no others.
ENV = "metaworld/door-close"
# `pebble` last, because its runs read other settings than those of the others.
COLUMNS = ("cpu", "best", "demo", "paper", "pebble")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the two pages."""
    files.append(File.generated(config, "reference/cli.md", content=commands_page()))
    files.append(File.generated(config, "reference/settings.md", content=settings_page()))
    return files


def commands_page() -> str:
    """Every command with its arguments."""
    parts = [
        "# Command line",
        "What `ubp2 COMMAND --help` says, in one place; this page is made from the same parsers. Every command takes "
        "`--json`, which prints one JSON object on stdout and everything else on stderr. "
        "[Exit codes](../terminal.md#exit-codes) are the same for all.",
    ]
    for name, command in COMMANDS.items():
        parts += list(_command(f"ubp2 {name}", parser_of(command.arguments), 2))
    return "\n\n".join(parts) + "\n"


def parser_of(arguments: type) -> argparse.ArgumentParser:
    """The parser of a command. tyro means to replace this function some day; its version is pinned until then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return tyro.extras.get_parser(arguments)


def _command(title: str, parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield f"{'#' * level} {title}"
    if parser.description:
        yield _prose(parser.description)
    own = [action for action in parser._actions if action.dest != "help"]
    below = [action for action in own if isinstance(action, argparse._SubParsersAction)]
    settings = [action for action in own if action.dest.startswith("config.")]
    rows = [_row(action) for action in own if action not in below and action not in settings]
    if rows:
        yield table(("argument", "value", "what it does"), rows)
    if settings:
        yield (
            f"And each of the {len(settings)} [settings](settings.md) as a flag: `planner.horizon` is "
            "`--planner.horizon 5`."
        )
    for action in below:
        for name, parser in action.choices.items():
            yield from _command(f"{title} {name}", parser, level + 1)


def _row(action: argparse.Action) -> tuple[str, str, str]:
    name = ", ".join(action.option_strings) or action.dest.upper().replace("-", "_")
    value = "" if action.nargs == 0 or action.metavar is None else str(action.metavar).replace("{None}|", "")
    return f"`{name}`", f"`{value}`" if value else "", _prose(action.help or "")


def _prose(text: str) -> str:
    """One line in which nothing is taken for Markdown or HTML."""
    line = re.sub(r"\s+", " ", re.sub(r"\x1b\[[0-9;]*m", "", text)).strip()
    line = re.sub(r"\(repeatable\)$|\(default: (?:None|False)\)$", "", line)  # what a flag is without being given
    line = re.sub(r"\(default: (.*)\)$", lambda found: f"Default: {found[1]}.", line)
    return line.replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_")


def settings_page() -> str:
    """Every setting with its value in each preset."""
    parts = [
        "# Settings",
        f"Every setting of a run, with its value in each preset for `{ENV}`. A value that is the same in all presets "
        "stands once; `None` is worked out from the others when a run begins, as the line says. "
        "Give one as a flag (`--planner.horizon 5`), or in a file (`--config my.yaml`) by sections:",
        "```yaml\nsteps: 8000\nplanner:\n  horizon: 5\npreferences: {every: 500, per_session: 20}\n```",
        "`config.yaml` in a run folder has the values that were used, all of them.",
        "| preset | is for |\n|---|---|\n"
        + "\n".join(f"| `{name}` | {_prose((PRESETS[name].__doc__ or '').split(chr(10))[0])} |" for name in COLUMNS),
    ]
    configs = [preset(name, ENV) for name in COLUMNS]
    docs = {
        option.removeprefix("--").replace("-", "_"): re.sub(r" ?\((?:default|repeatable).*\)$", "", action.help or "")
        for action in parser_of(Config)._actions
        for option in action.option_strings
    }
    top = [
        field for field in dataclasses.fields(Config) if not dataclasses.is_dataclass(getattr(configs[0], field.name))
    ]
    parts += ["## The run", _settings(top, "", configs, docs)]
    for field in dataclasses.fields(Config):
        section = getattr(configs[0], field.name)
        if dataclasses.is_dataclass(section):
            sections = [getattr(config, field.name) for config in configs]
            parts += [f"## {field.name}", _prose(section.__doc__ or "")]
            parts.append(_settings(dataclasses.fields(section), f"{field.name}.", sections, docs))
    return "\n\n".join(parts) + "\n"


def _settings(fields: Iterable[dataclasses.Field[Any]], prefix: str, sections: list[Any], docs: dict[str, str]) -> str:
    rows = []
    for field in fields:
        name = prefix + field.name
        rows.append(
            (
                f"<code>{breakable(name)}</code>",
                _values([getattr(section, field.name) for section in sections]),
                _prose(docs[name]),
            )
        )
    return table(("setting", "value", "what it does"), rows)


def breakable(name: str) -> str:
    """A name that a narrow screen may break at its joints."""
    return re.sub(r"([._])", r"\1<wbr>", name)


def _values(values: list[Any]) -> str:
    """One value where all presets have the same; else each value with the presets that have it."""
    written = [_written(value) for value in values]
    if len(set(written)) == 1:
        return written[0]
    names = {value: [name for name, own in zip(COLUMNS, written, strict=True) if own == value] for value in written}
    return "<br>".join(f"{value} {', '.join(own)}" for value, own in names.items())


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return f"`{' '.join(map(str, value))}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; bars are escaped, except in code, where they mean themselves."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(tuple(head))]
    lines += [
        "| " + " | ".join(re.sub(r"(`[^`]*`)|\|", lambda bar: bar[1] or r"\|", cell) for cell in row) + " |"
        for row in rows
    ]
    return "\n".join(lines)

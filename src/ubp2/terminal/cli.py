"""The command line: `ubp2 COMMAND`, one line of `COMMANDS` each.

Parsing, help and errors in a configuration are over before anything heavy is imported; `terminal.commands` imports jax
and the environments where they are needed.

`train_arguments` parses `ubp2 train`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import tyro

from ubp2._version import __version__
from ubp2.bench import options as bench_options
from ubp2.doctor import options as doctor_options
from ubp2.errors import UserError, unknown_name
from ubp2.evaluation import options as evaluation_options
from ubp2.experiments import options as experiment_options
from ubp2.experiments.tuning import options as tuning_options
from ubp2.lab import options as lab_options
from ubp2.labelling import labels_options
from ubp2.labelling import options as labelling_options
from ubp2.sharing import options as sharing_options
from ubp2.signals import CHECKPOINTED
from ubp2.terminal import colour, commands, completion, train_arguments
from ubp2.terminal.arguments import arguments_of, check_words
from ubp2.terminal.colour import paint
from ubp2.terminal.refusals import refusal
from ubp2.terminal.usage import usage
from ubp2.theory import options as theory_options
from ubp2.vision import options as vision_options

__all__ = ["COMMANDS", "main"]

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


class Command(NamedTuple):
    """A command: the dataclass of its arguments, and the function, as module:name, that answers them.

    The function returns what `commands.Outcome` has; its module is imported when the command is called.
    """

    arguments: type
    answer: str

    def run(self, parsed: Any) -> commands.Outcome:
        module, _, name = self.answer.partition(":")
        return commands.Outcome(*getattr(importlib.import_module(f"ubp2.{module}"), name)(parsed))


COMMANDS: Mapping[str, Command] = {
    "train": Command(commands.Train, "terminal.training:answer"),
    "eval": Command(commands.Eval, "terminal.commands:evaluate"),
    "export": Command(sharing_options.Export, "sharing.answers:export"),
    "push": Command(sharing_options.Push, "sharing.answers:push"),
    "plot": Command(commands.Plot, "terminal.commands:plot"),
    "report": Command(evaluation_options.Report, "evaluation.answers:report"),
    "compare": Command(evaluation_options.Compare, "evaluation.answers:compare"),
    "reproduce": Command(experiment_options.Reproduce, "experiments.reproduce:answer"),
    "sweep": Command(experiment_options.Sweep, "experiments.sweep:answer"),
    "tune": Command(tuning_options.Tune, "experiments.tuning.search:answer"),
    "info": Command(commands.Info, "terminal.commands:info"),
    "envs": Command(commands.Envs, "terminal.commands:envs"),
    "labels": Command(labels_options.Labels, "labelling.labels:answer"),
    "encoder": Command(vision_options.Encoder, "terminal.commands:encoder"),
    "bench": Command(bench_options.Bench, "terminal.commands:bench"),
    "lab": Command(lab_options.Reward, "terminal.commands:lab"),
    "theory": Command(theory_options.Theory, "theory.answer:answer"),
    "label": Command(labelling_options.Label, "labelling.serve:label"),
    "doctor": Command(doctor_options.Doctor, "doctor.answer:answer"),
    "completion": Command(completion.Completion, "terminal.completion:answer"),
}


class _Named(NamedTuple):
    """A command that goes on with the name of what it does: the names, what one is called, what is asked for."""

    names: Sequence[str]
    kind: str
    asks: str


_WITH_NAME: Mapping[str, _Named] = {
    "bench": _Named(bench_options.BENCHES, "bench", "what to measure"),
    "encoder": _Named(vision_options.WORKS, "work on encoders", "what to do"),
    "labels": _Named(labels_options.WORKS, "work on labels", "what to do"),
    "lab": _Named(lab_options.LABS, "laboratory", "the name of a laboratory"),
    "theory": _Named(theory_options.STUDIES, "study", "the name of a study"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    docs/terminal.md lists them.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:2] == ["completion", "words"]:  # a shell asks, about a line that may hold any option
        kinds = {name: command.arguments for name, command in COMMANDS.items()}
        for word in completion.candidates(arguments[2:], kinds):
            print(word)  # without any, not even an empty line, which bash would take for the one word there is
        return 0
    with colour.chosen(arguments) as words, _results(reserve="--json" in arguments) as results:
        try:
            outcome = _run(words)
            text = json.dumps(_jsonable(outcome.data)) if results else outcome.text
            if text:
                print(text, file=results or sys.stdout, flush=True)
            return outcome.code
        except UserError as error:
            return _fail(str(error), results, EXIT_USER_ERROR)
        except KeyboardInterrupt:
            return _fail("interrupted", results, EXIT_INTERRUPTED)
        except SystemExit as asked:  # of `signals.left_early`: there is nothing to save
            if asked.code != CHECKPOINTED:
                raise
            advice = "go on with ubp2 train --resume RUN if its folder is there, else run the same again"
            return _fail(f"told to stop where no checkpoint was being written: {advice}", results, CHECKPOINTED)
        except BrokenPipeError:  # the reader of our output, such as head, has seen enough
            _let_go(results or sys.stdout)
            return 0
        except OSError as error:
            if error.errno not in _DISK_ERRORS:
                raise
            return _fail(_refused(error), results, EXIT_USER_ERROR)


_DENIED = (errno.EACCES, errno.EPERM)  # to read as well as to write
_DISK_ERRORS = (
    *_DENIED,
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    *(errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG),  # a path that cannot be written to
)


def _refused(error: OSError) -> str:
    what = "use" if error.errno in _DENIED else "write"
    where = f" {error.filename}" if error.filename else ""
    return f"cannot {what}{where}: {(error.strerror or str(error)).lower()}"


def _run(arguments: list[str]) -> commands.Outcome:
    colour.check()
    if arguments[:1] == ["--json"]:  # before the command, as people write it who know it from other programs
        arguments = [*arguments[1:], "--json"] if len(arguments) > 1 else []
    name, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if name == "help" and rest and rest[0] in COMMANDS:
        name, rest = rest[0], [*rest[1:], "--help"]
    if name in ("-h", "--help", "help"):
        return commands.Outcome(
            {"commands": list(COMMANDS)}, usage({name: str(each.arguments.__doc__) for name, each in COMMANDS.items()})
        )
    if name in ("-V", "-v", "--version", "version"):
        return commands.Outcome({"version": __version__}, f"ubp2 {__version__}")
    if name not in COMMANDS:
        known = ["--help", "--version"] if name.startswith("-") else COMMANDS
        raise unknown_name("option" if name.startswith("-") else "command", name, known)
    if name in _WITH_NAME:
        _require_name(name, rest, _WITH_NAME[name])
    parsed = _parse_train(rest) if name == "train" else _parse(name, rest)
    return commands.Outcome({}, "") if parsed is None else COMMANDS[name].run(parsed)


def _require_name(command: str, arguments: Sequence[str], named: _Named) -> None:
    """Say what there is to whoever named nothing or something else."""
    first = arguments[0] if arguments else "--json"
    if first in named.names or first in ("-h", "--help"):
        return
    if first.startswith("-"):
        raise UserError(f"ubp2 {command} needs {named.asks}, before any option: {', '.join(named.names)}")
    raise unknown_name(named.kind, first, named.names)


def _parse_train(arguments: list[str]) -> commands.Train | None:
    return train_arguments.parsed(arguments, _parse)


def _parse(name: str, arguments: list[str], default: Any = None) -> Any:
    """Parse the arguments of one command; None: tyro has printed the help."""
    kind, command = COMMANDS[name].arguments, f"ubp2 {name}"
    has_name = name in _WITH_NAME and arguments[:1] and arguments[0] in _WITH_NAME[name].names
    asked = f"{command} {arguments[0]}" if has_name else command
    called = command if arguments_of(kind).named else asked  # tyro adds names that have a dataclass each
    check_words(called, kind, arguments)
    options = {} if default is None else {"default": default}
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), warnings.catch_warnings(action="ignore"):  # of what is no choice
            return tyro.cli(kind, prog=called, args=arguments, **options)
    except SystemExit as error:
        if not error.code:
            return None
        raise UserError(refusal(said.getvalue(), asked)) from None


def _fail(message: str, results: TextIO | None, code: int) -> int:
    if message:
        print(f"{paint('ubp2:', 'red', sys.stderr)} {message}", file=sys.stderr)
    if results:
        try:
            print(json.dumps({"error": message}), file=results, flush=True)
        except OSError:  # the answer could not be written, and this cannot either
            _let_go(results)
    return code


def _let_go(stream: TextIO) -> None:
    """What this stream still holds goes nowhere: where it went to takes nothing any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def _results(reserve: bool) -> Iterator[TextIO | None]:
    """Keep stdout for the one JSON object: whatever else writes there, workers and C libraries too, goes to stderr."""
    if not reserve:
        yield None
        return
    sys.stdout.flush()
    real = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(real), "w") as stream, contextlib.redirect_stdout(sys.stderr):
            yield stream
    finally:
        os.dup2(real, 1)
        os.close(real)


def _jsonable(value: Any) -> Any:
    """Plain JSON: paths and numpy scalars converted, NaN and infinity as null, which JSON does not have."""
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value

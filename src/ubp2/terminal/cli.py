"""The command line: `ubp2 COMMAND`, one line of `COMMANDS` each.

Parsing, help and errors in a configuration are over before anything heavy is imported; `terminal.commands` imports jax
and the environments where they are needed.

`ubp2 train` is parsed twice. The first look finds --preset, --env, --config and --resume, which decide the base
configuration; the second lays the flags over it, so that --help shows the values of the preset that was asked for.
`--teacher NAME` is short for `--teacher.name NAME`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import itertools
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import tyro

from ubp2._version import __version__
from ubp2.bench import options as bench_options
from ubp2.config import own
from ubp2.config.files import check_resumable, load_yaml, overridden
from ubp2.config.presets import DEFAULT_ENV, DEFAULT_PRESET, preset
from ubp2.config.schema import Config
from ubp2.config.switching import check_asked
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
from ubp2.storage.population import members
from ubp2.storage.runs import Run
from ubp2.terminal import colour, commands, completion
from ubp2.terminal.arguments import arguments_of, check_words, settings_named
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
    "train": Command(commands.Train, "terminal.commands:train"),
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
    """Find the base configuration, lay the flags over it, and check that a resumed run keeps its own."""
    arguments = _spelled_out(arguments)
    asked, (arguments, named) = settings_named(arguments), _own_functions(arguments)
    resume = _peek(arguments, "--resume")
    if _peek(arguments, "--population") is not None:
        return _parse_program(arguments)
    envs = _values(arguments, "--env")
    if resume is None:
        _check_envs(envs)
        each = [_parse_new(_with_env(arguments, env), named, asked) for env in envs or [None]]
        first = each[0]
        if first is None or len(each) == 1:
            return first
        return replace(first, configs=tuple(own.config for own in each if own is not None))
    for flag in ("--preset", "--config"):
        if _peek(arguments, flag) is not None:
            raise UserError(f"--resume goes on with the configuration of the run; leave out {flag}")
    if _peek(arguments, "--labels") is not None:
        raise UserError(
            f"--resume goes on with the labels in the folder; add more with: ubp2 labels import {resume} FILE"
        )
    if _peek(arguments, "--seeds") is not None:
        raise UserError("--resume goes on with the seeds in the folder; leave out --seeds")
    saved = Run.open(members(resume)[0]).config
    parsed = _parse("train", arguments, commands.Train(config=overridden(saved, named)))
    if parsed is not None:
        check_resumable(saved, parsed.config)
    return parsed


def _parse_new(arguments: list[str], named: Mapping[str, str], asked: set[str]) -> commands.Train | None:
    """A new run of one environment."""
    parsed = _parse("train", arguments, commands.Train(config=overridden(_base_config(arguments), named)))
    if parsed is not None:
        check_asked(parsed.config, asked)
    return parsed


def _parse_program(arguments: list[str]) -> commands.Train | None:
    """The runs that a file names have their configurations."""
    allowed = {"--population", "--minutes", "--quiet", "--json", "--fake-preempt", "--help"}
    for word in arguments:
        flag = word.partition("=")[0].replace("_", "-")
        if flag.startswith("--") and flag not in allowed:
            raise UserError(f"--population goes by the file, which names configurations; leave out {flag}")
    return _parse("train", arguments, commands.Train())


def _check_envs(envs: Sequence[str]) -> None:
    """Refuse an environment that is named twice, which would train the same twice."""
    for env in envs:
        if envs.count(env) > 1:
            raise UserError(f"--env {env} stands there {_times(envs.count(env))}; for more runs of it there is --seeds")


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _with_env(arguments: list[str], env: str | None) -> list[str]:
    """The arguments with this --env alone."""
    if env is None:
        return arguments
    left, rest = [], iter(arguments)
    for word in rest:
        if word == "--env":
            next(rest, None)
        elif not word.startswith("--env="):
            left.append(word)
    return [*left, "--env", env]


def _values(arguments: list[str], flag: str) -> list[str]:
    """Every value that is given to `flag`, in order; one that is missing is left to the parser."""
    found = [_peek(arguments[i : i + 2], flag) for i, word in enumerate(arguments) if word.partition("=")[0] == flag]
    return [] if None in found else [value for value in found if value is not None]


def _base_config(arguments: list[str]) -> Config:
    """What the flags are laid over: the preset, and over it the file. The environment picks the preset's column."""
    name, env, file = (_peek(arguments, flag) for flag in ("--preset", "--env", "--config"))
    if env is None:
        env = DEFAULT_ENV if file is None else load_yaml(Path(file), Config(env=DEFAULT_ENV)).env
    base = preset(DEFAULT_PRESET if name is None else name, env)
    return base if file is None else load_yaml(Path(file), base)


def _spelled_out(arguments: list[str]) -> list[str]:
    """The arguments with --teacher NAME and --teacher=NAME as the flags that tyro knows; an address means people."""
    spelled: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if flag != "--teacher":
            spelled.append(argument)
            continue
        values = [value] if equals else list(itertools.islice(rest, 1))
        if values and "://" in values[0]:
            spelled += ["--teacher.name", "human", "--teacher.url", *values]
        else:
            spelled += ["--teacher.name", *values]
    return spelled


def _own_functions(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """The arguments without settings that name module:function, and these: tyro knows their choices alone."""
    named = {name: value for name in own.SETTINGS if own.is_named(value := _peek(arguments, f"--{name}"))}
    left, words = [], iter(arguments)
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag.removeprefix("--") not in named:
            left.append(word)
        elif not equals:
            next(words, None)
    return left, {name: str(value) for name, value in named.items()}


def _peek(arguments: list[str], flag: str) -> str | None:
    """Return the last value given to `flag`, before any real parsing."""
    value = None
    for i, here in enumerate(arguments):
        if here == flag:
            after = arguments[i + 1 : i + 2]
            value = after[0] if after and not after[0].startswith("--") else None
        elif here.startswith(f"{flag}="):
            value = here.partition("=")[2]
    return value


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

"""Tab completion: a short script for the shell, which asks `ubp2 completion words ...` what may stand at the cursor.

Asking costs a moment at each press of the key, and knows what no script could: run folders, and what has been
installed since. Where nothing is offered the shell completes names of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ubp2.terminal.arguments import Argument, Arguments, arguments_of, free_words
from ubp2.terminal.flags import Json

__all__ = ["Completion", "answer", "candidates"]


@dataclass(frozen=True)
class Completion:
    """Print the script for tab completion in bash, zsh or fish."""

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Which shell; where the script goes is written at its top."""
    json: Json = False


SCRIPTS = {
    "bash": """\
# Tab completion of ubp2 in bash. In ~/.bashrc:  source <(ubp2 completion bash)
_ubp2() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        printf -v line %q "$line"
        COMPREPLY+=("$line")
    done < <("${COMP_WORDS[0]}" completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _ubp2 ubp2
""",
    "zsh": """\
#compdef ubp2
# Tab completion of ubp2 in zsh. In ~/.zshrc, after compinit:  source <(ubp2 completion zsh)
_ubp2() {
    local -a found
    found=("${(@f)$("${words[1]}" completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    if (( $#found )); then compadd -- "${found[@]}"; else _files; fi
}
compdef _ubp2 ubp2
""",
    "fish": """\
# Tab completion of ubp2 in fish. Once:  ubp2 completion fish > ~/.config/fish/completions/ubp2.fish
function __ubp2_words
    set -l words (commandline -opc) (commandline -ct)
    $words[1] completion words $words[2..-1] 2>/dev/null
end
complete -c ubp2 -a '(__ubp2_words)'
""",
}


def answer(args: Completion) -> tuple[dict[str, Any], str]:
    """The script."""
    return {"shell": args.shell, "script": SCRIPTS[args.shell]}, SCRIPTS[args.shell].rstrip("\n")


def candidates(words: Sequence[str], commands: Mapping[str, type]) -> list[str]:
    """What may stand in place of the last of `words`, the words after `ubp2`; empty: whatever the shell offers."""
    *before, here = words or [""]
    if not before:
        return _starting(here, [*commands, "--help", "--version"])
    if before[0] not in commands:
        return []
    return _of_command(commands[before[0]], before[1:], here)


def _of_command(kind: type, before: Sequence[str], here: str) -> list[str]:
    arguments = arguments_of(kind)
    if arguments.named:
        if before:
            return _of_command(arguments.named[before[0]], before[1:], here) if before[0] in arguments.named else []
        return _starting(here, [*arguments.named, "--help"])
    options = {**arguments.options, "--no-color": Argument("--no-color", switch=True)}
    if "--teacher.name" in options:
        options["--teacher"] = options["--teacher.name"]
    if here == "=" or before[-1:] == ["="]:  # bash gives --env=toy as three words
        flag, start = (before[-1:] or [""])[0] if here == "=" else (before[-2:] or [""])[0], here.lstrip("=")
        return _starting(start, _values(options[flag])) if flag in options else []
    flag, equals, start = here.partition("=")
    if equals and flag in options:
        return [f"{flag}={value}" for value in _starting(start, _values(options[flag]))]
    if here.startswith("-"):
        return _starting(here, options)
    asked = options.get(before[-1]) if before else None
    if asked is not None and not asked.switch:
        return _starting(here, _values(asked, here))
    return _starting(here, _values(_positional(arguments, before), here))


def _positional(arguments: Arguments, before: Sequence[str]) -> Argument | None:
    """Which positional argument is next, after those that are there."""
    there, positionals = len(free_words(arguments, before)), arguments.positionals
    if there < len(positionals):
        return positionals[there]
    return positionals[-1] if positionals and positionals[-1].many else None


def _values(argument: Argument | None, here: str = "") -> Iterable[str]:
    """What an argument takes, as far as it is known."""
    if argument is None:
        return []
    if argument.choices:
        return argument.choices
    if argument.metavar.lstrip("[").startswith("RUN") or argument.name == "--resume":
        return _runs()
    known = {"--env": lambda: _environments(here), "--preset": _presets, "experiment": _experiments}
    return known.get(argument.name, list)()


def _presets() -> Iterable[str]:
    from ubp2.config.presets import PRESETS

    return PRESETS


def _experiments() -> Iterable[str]:
    from ubp2.experiments.catalogue import EXPERIMENTS

    return EXPERIMENTS


def _environments(here: str) -> list[str]:
    """Ids of the suites; dm-control, which takes a second to import, is asked when its name has been begun."""
    from ubp2.envs.registry import list_ids

    return [name for names in list_ids(dmc=here.startswith("dmc")).values() for name in names]


def _runs() -> list[str]:
    """Run folders here and below runs/, and folders of several runs, the newest first."""
    files = [file for depth in ("*", "runs/*", "runs/*/*") for file in Path().glob(f"{depth}/info.json")]
    populations = [file for depth in ("*", "runs/*", "runs/*/*") for file in Path().glob(f"{depth}/population.json")]
    files += [*populations, *(file for one in populations for file in one.parent.glob("*/*/s*/info.json"))]
    return [str(file.parent) for file in sorted(files, key=lambda file: -file.stat().st_mtime)]


def _starting(here: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(here)]

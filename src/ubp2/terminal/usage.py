"""What `ubp2 --help` shows: the commands, by what a person wants."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping

__all__ = ["GROUPS", "usage"]

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Learn": ("train", "tune", "sweep", "encoder"),
    "Look": ("eval", "plot", "report", "compare", "info"),
    "People": ("label", "labels"),
    "Share": ("export", "push"),
    "The paper": ("reproduce", "lab", "theory"),
    "This machine": ("doctor", "envs", "bench", "completion"),
}
WIDEST = 100


def usage(commands: Mapping[str, str]) -> str:
    """The page, as wide as the terminal; commands: what each does."""
    width = min(shutil.get_terminal_size().columns, WIDEST)
    lines = ["usage: ubp2 COMMAND [options]", "", "Reinforcement learning from preferences by optimistic planning."]
    for title, names in GROUPS.items():
        own = [name for name in names if name in commands]
        lines += ["", f"{title}:"] if own else []
        for name in own:
            lines += textwrap.wrap(f"  {name:11}{commands[name]}", width, subsequent_indent=" " * 13)
    return "\n".join(
        [
            *lines,
            "",
            "ubp2 COMMAND --help shows the options of a command. Every command takes --json",
            "and --no-color. Is something amiss? ubp2 doctor",
            "Start with: ubp2 train --env toy/reach --steps 3000",
        ]
    )

"""What `ubp2 label` takes. Imports nothing heavy: its help is as instant as all help."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ubp2.errors import UserError
from ubp2.terminal.flags import Json, Switch

__all__ = ["Label", "check"]

PORT = 8642
TOKEN_VARIABLE = "UBP2_LABEL_TOKEN"
TRAINER_VARIABLE = "UBP2_TEACHER_TOKEN"


@dataclass(frozen=True)
class Label:
    """Serve the page on which people compare clips of a run, while another process trains it or none does."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder; with --dataset a new folder for the questions, or the one that an earlier such command made."""
    dataset: tuple[Path, ...] = ()
    """Ask about recorded episodes, without training: run folders, or .npz files with obs [T+1, D] and action [T, A]."""
    remote: Switch = False
    """The trainer is on another machine (ubp2 train --teacher http://THIS-MACHINE:PORT); the folder becomes a double of
    its run, without the true reward."""
    pairs: int = 200
    """Questions about the dataset."""
    length: int = 25
    """Decisions of each clip of the dataset."""
    host: str = "127.0.0.1"
    """Address to listen on; any but this machine's own needs a token: 0.0.0.0 lets other machines in."""
    port: int = PORT
    """Port; one that is taken is left for the next free one, up to 20 further. 0: any."""
    token: str | None = None
    """Secret that a browser must know, or the word new; None: $UBP2_LABEL_TOKEN, else one of the run's own where others
    can connect."""
    known_as: tuple[str, ...] = ()
    """Further names of this server, as a proxy or a domain gives it."""
    overlap: int = 1
    """How many annotators answer each question."""
    again: float = 0.05
    """Share of the pairs that are asked again of the same annotator, with sides exchanged, to see how sure one is."""
    agreement: Annotated[bool, tyro.conf.arg(help="Say after an answer what the reward model thinks of the pair.")] = (
        True
    )
    instruction: str | None = None
    """What annotators are asked to look for; None: a sentence made of the name of the task."""
    browser: Annotated[bool, tyro.conf.arg(help="Open the page in a browser, where there is one.")] = True
    json: Json = False


def check(args: Label) -> None:
    """Refuse what cannot be served, before anything is opened."""
    if not 0 <= args.port <= 65535:
        raise UserError(f"--port lies between 0 and 65535, got {args.port}")
    if args.remote and args.dataset:
        raise UserError("--remote is for a trainer elsewhere and --dataset for none at all; leave out one of them")
    if not args.dataset and (args.pairs, args.length) != (Label.pairs, Label.length):
        raise UserError("--pairs and --length are about a dataset: name it with --dataset, or leave them out")
    for name in args.known_as:
        if "/" in name or name.count(":") == 1:  # what a Host header is compared with has neither scheme nor port
            raise UserError(f"--known-as takes a name alone, such as label.example.org, got {name}")
    if args.overlap < 1:
        raise UserError(f"--overlap is at least 1, got {args.overlap}")
    if not 0 <= args.again <= 1:
        raise UserError(f"--again is a share between 0 and 1, got {args.again}")
    if args.instruction is not None and len(args.instruction) > 4000:
        raise UserError(f"--instruction has at most 4000 characters, got {len(args.instruction)}")


def token(args: Label) -> str | None:
    """The secret that was given. Other users of the machine can read command lines, and not the variable."""
    return os.environ.get(TOKEN_VARIABLE) or None if args.token is None else args.token

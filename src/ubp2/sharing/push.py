"""A run on the Hugging Face Hub: a folder with everything a stranger needs, and its upload.

The folder is made from names that are listed here, and the upload takes those alone. What says who or where is not
among them: info.json (host, command), the label store, the address of a page for people.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from ubp2.config.files import moved, save_yaml
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.labelling import transfer
from ubp2.sharing import card
from ubp2.sharing.export import policy_of, write_numpy
from ubp2.storage.database import disk_errors
from ubp2.storage.runs import Run
from ubp2.trained import evaluate

__all__ = ["Folder", "assemble", "check_repo", "hub", "upload"]

NAMES = (
    "README.md",
    "policy.npz",
    "numpy_policy.py",
    "config.yaml",
    "metrics.jsonl",
    "curve.png",
    "clip.mp4",
    "labels.jsonl.gz",
)
_REPO = re.compile(r"[\w.-]+/[\w.-]+")


class Folder(NamedTuple):
    """What was put together, and what was left out and why."""

    path: Path
    files: list[str]
    notes: list[str]


def check_repo(repo: str) -> None:
    """Refuse what cannot be a repository."""
    if not _REPO.fullmatch(repo):
        raise UserError(f"expected a repository as owner/name, such as me/door-close-ubp2, got {repo!r}")


def assemble(run: Path | str, repo: str, out: Path, *, with_labels: bool = False) -> Folder:
    """Write model card, policy, configuration, metrics and pictures of a run into a folder."""
    policy = policy_of(run)  # also refuses what is not one run
    source = Run.open(run)
    with disk_errors(out, None):
        _empty(out)
        write_numpy(policy, out / "policy.npz")
        save_yaml(moved(source.config, Config()), out / "config.yaml")  # the page for people is nobody's business
        shutil.copyfile(source.folder / "metrics.jsonl", out / "metrics.jsonl")
        notes = [*_draw(source, out), *_film(source, out)]
        if with_labels:
            transfer.export(source.folder, out / "labels.jsonl.gz", anonymous=True, overwrite=True, intact=False)
        files = [name for name in NAMES[1:] if (out / name).is_file()]
        text = card.card(card.gather(source, policy.metadata), repo, files)
        (out / "README.md").write_text(text, encoding="utf-8")
    return Folder(out, ["README.md", *files], notes)


def _empty(out: Path) -> None:
    """Make the folder, without what an earlier time left in it; refuse one that holds anything else."""
    out.mkdir(parents=True, exist_ok=True)
    others = sorted(path.name for path in out.iterdir() if path.name not in NAMES)
    if others:
        raise UserError(f"{out} holds other things ({', '.join(others[:3])}); choose another folder with --out")
    for path in out.iterdir():
        path.unlink()


def _draw(run: Run, out: Path) -> list[str]:
    from ubp2.evaluation.plots import plot_runs

    try:
        plot_runs([run.folder], out / "curve.png")
    except UserError as error:
        return [f"no curve: {error}"]
    return []


def _film(run: Run, out: Path) -> list[str]:
    """The newest clip of the policy that the run has, or one made now; a machine that cannot render leaves it out."""
    clips = sorted(run.videos.glob("*-policy.mp4"))
    if clips:
        shutil.copyfile(clips[-1], out / "clip.mp4")
        return []
    try:
        evaluate(run.folder, episodes=1, video=out / "clip.mp4")
    except UserError as error:
        (out / "clip.mp4").unlink(missing_ok=True)
        return [f"no clip: {error}"]
    return []


def hub() -> Any:
    """The Hub as the user is known there, or a sentence that says what is missing."""
    try:
        from huggingface_hub import HfApi, get_token
    except ImportError:
        raise UserError(
            "ubp2 push needs the package huggingface_hub: pip install 'ubp2[hub]'; --dry-run does without"
        ) from None
    if get_token() is None:
        raise UserError(
            "the Hub does not know you: log in with 'hf auth login', or set HF_TOKEN to a token that may write; "
            "--dry-run does without"
        )
    return HfApi()


def upload(api: Any, repo: str, folder: Folder, *, private: bool) -> str:
    """Put the files of the folder into the repository, which is made if need be; return its address."""
    from huggingface_hub import errors

    network = getattr(errors, "HTTPError", OSError)  # of the library that it speaks with, another in each version
    try:
        url = api.create_repo(repo, private=private or None, exist_ok=True)
        api.upload_folder(
            repo_id=repo, folder_path=folder.path, allow_patterns=folder.files, commit_message="Upload a run of ubp2"
        )
    except (OSError, ValueError, network) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"the Hub did not take {repo}: {reason}. What was to be uploaded is in {folder.path}; check the name, the "
            f"rights of your token and the network, then run the same command again"
        ) from error
    return str(url)

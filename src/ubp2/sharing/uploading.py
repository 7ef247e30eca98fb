"""The Hugging Face Hub: who one is there, and the upload of what `push` put together. Needs no jax."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from ubp2.errors import UserError

__all__ = ["Folder", "check_repo", "hub", "upload"]

_REPO = re.compile(r"\w[\w.-]*/\w[\w.-]*")  # as on the Hub; so no name is a folder above


class Folder(NamedTuple):
    """What was put together, and what was left out and why."""

    path: Path
    files: list[str]
    notes: list[str]


def check_repo(repo: str) -> None:
    """Refuse what cannot be a repository."""
    if not _REPO.fullmatch(repo):
        raise UserError(f"expected a repository as owner/name, such as me/door-close-ubp2, got {repo!r}")


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

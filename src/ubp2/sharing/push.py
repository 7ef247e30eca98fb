"""A run on the Hugging Face Hub: a folder with everything a stranger needs, which `uploading` uploads.

The folder is made from names that are listed here, and the upload takes those alone. What says who or where is not
among them: info.json (host, command), the label store, the address of a page for people.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from pathlib import Path

from ubp2.config.files import moved, save_yaml
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.labelling import transfer
from ubp2.sharing import card
from ubp2.sharing.export import policy_of, write_numpy
from ubp2.sharing.uploading import Folder
from ubp2.storage.database import disk_errors
from ubp2.storage.runs import Run
from ubp2.trained import evaluate

__all__ = ["assemble"]

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
WRITTEN = ".ubp2-push.json"  # digest of each file as it was written: what differs from it is somebody's own


def assemble(run: Path | str, repo: str, out: Path, *, with_labels: bool = False) -> Folder:
    """Write model card, policy, configuration, metrics and pictures of a run into a folder."""
    policy = policy_of(run)  # also refuses what is not one run
    source = Run.open(run)
    with disk_errors(out, None):
        edited = _empty(out)
        try:
            write_numpy(policy, out / "policy.npz")
            save_yaml(moved(source.config, Config()), out / "config.yaml")  # the page for people is nobody's business
            rows = (source.folder / "metrics.jsonl").read_bytes()
            (out / "metrics.jsonl").write_bytes(rows[: rows.rfind(b"\n") + 1])  # a run that goes on may be writing one
            notes = [*_draw(source, out), *_film(source, out)]
            if with_labels:
                transfer.export(source.folder, out / "labels.jsonl.gz", anonymous=True, overwrite=True, intact=False)
            files = [name for name in NAMES[1:] if (out / name).is_file()]
            if edited:
                notes.append(
                    f"{out / 'README.md'} was edited and stays as it is; remove it to have the card written anew"
                )
            else:
                text = card.card(card.gather(source, policy.metadata), repo, files)
                (out / "README.md").write_text(text, encoding="utf-8")
        finally:  # also where it was interrupted: the next time knows these files
            (out / WRITTEN).write_text(json.dumps(_digests(out) | edited, indent=2) + "\n", encoding="utf-8")
    return Folder(out, ["README.md", *files], notes)


def _empty(out: Path) -> dict[str, str]:
    """Make the folder, without what an earlier time wrote there; refuse one that holds anything else.

    A card that was edited since stays: it is what shall be uploaded. What is returned has then the digest of the card
    as it was written, and is empty otherwise.
    """
    out.mkdir(parents=True, exist_ok=True)
    record = out / WRITTEN
    written: dict[str, str] = {}
    if record.is_file():
        with contextlib.suppress(ValueError):  # a kill cut it short: then nothing is known
            written = json.loads(record.read_text(encoding="utf-8"))
    others = sorted(path.name for path in out.iterdir() if path.name not in (*written, WRITTEN))
    if others:
        raise UserError(
            f"{out} holds other things ({', '.join(others[:3])}), which this ubp2 push has no record of writing; "
            f"remove them, or choose another folder with --out"
        )
    now = _digests(out)
    changed = [name for name in now if now[name] != written[name]]
    own = [name for name in changed if name != "README.md"]
    if own:
        raise UserError(
            f"{', '.join(own)} in {out} is not as ubp2 push recorded it, and would be written over; remove it, or "
            f"choose another folder with --out"
        )
    for name in now.keys() - set(changed):
        (out / name).unlink()
    return {name: written[name] for name in changed}


def _digests(out: Path) -> dict[str, str]:
    """Digest of each file that may be uploaded."""
    files = [out / name for name in NAMES if (out / name).is_file()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


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

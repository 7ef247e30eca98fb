"""Checkpoints: directories that are either whole or absent, verified when they are read.

A checkpoint is ``<decision>/state.npz`` (arrays, no pickle) and ``<decision>/manifest.json`` (the hash of the arrays,
counters, versions, and the hash of all that). It is written aside, synced and renamed into place, and only then are
older ones removed. A damaged one is set aside, never deleted, and the one before it is used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shlex
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ubp2._version import __version__
from ubp2.errors import UserError
from ubp2.storage.database import disk_errors

__all__ = [
    "FORMAT",
    "Checkpoint",
    "drop_after",
    "flatten",
    "held",
    "load_common",
    "load_latest",
    "save",
    "side_by_side",
    "unflatten",
]

FORMAT = 1
"""Version of the layout; the hash over the manifest keeps its place and meaning in all of them."""

_LOG = logging.getLogger(__name__)
_TEMPORARY = ".tmp-"
_REPLACED = ".replaced"
_DAMAGED = ".damaged"
_NAME = re.compile(rf"(\d{{9,}})({re.escape(_REPLACED)})?")

_NUMBER = int | float | complex

Tree = TypeVar("Tree")


class Checkpoint(NamedTuple):
    """What `load_latest` found. `meta` has been through JSON: tuples are lists, keys are strings."""

    decision: int
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    path: Path


class _Damage(Exception):
    """The content of a checkpoint is not what was written."""


def save(folder: Path, decision: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any], keep: int) -> Path:
    """Write a checkpoint, on the disk when this returns, and keep it with the `keep` - 1 before it, at least one.

    If the disk fails, the earlier checkpoints are untouched and a `UserError` says what to do.
    """
    path = folder / f"{decision:09d}"
    with disk_errors(path, folder.parent):
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(_TEMPORARY + "*"):
            shutil.rmtree(leftover, ignore_errors=True)  # NFS keeps what somebody still reads; it is in nobody's way
        partial = folder / f"{_TEMPORARY}{path.name}"
        try:
            partial.mkdir(exist_ok=True)
            _write(partial, decision, arrays, meta)
            _put_in_place(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        older = [other for other in _candidates(folder) if _decision(other) < decision]
        for outdated in older[max(keep, 2) - 1 :]:
            _remove(outdated)
    return path


def load_latest(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint that is whole, setting damaged ones aside; None if none was ever written."""
    with disk_errors(folder, folder.parent):
        for decision in sorted({_decision(path) for path in _candidates(folder)}, reverse=True):
            if (found := _load_at(folder, decision)) is not None:
                return found
        if any(folder.glob(f"*{_DAMAGED}*")):
            raise UserError(
                f"every checkpoint in {folder} is damaged; they are kept there as *{_DAMAGED}: "
                f"put a backup of one in its place, or start a new run"
            )
    return None


def load_common(folders: Sequence[Path]) -> list[Checkpoint] | None:
    """Return the newest checkpoints of one decision that are whole in every folder; None if none was ever written.

    A kill while a population saves leaves some members one checkpoint ahead of the others. One in the middle of the
    very first save counts as none: nothing else is on the disk, and all start again.
    """
    if len(folders) == 1:
        latest = load_latest(folders[0])
        return None if latest is None else [latest]
    with disk_errors(folders[0], folders[0].parent.parent):
        decisions = [set(held(folder)) for folder in folders]
        for decision in sorted(set.intersection(*decisions), reverse=True):
            found = [_load_at(folder, decision) for folder in folders]
            if all(found):
                return [each for each in found if each is not None]
        damaged = any(any(folder.glob(f"*{_DAMAGED}*")) for folder in folders)
    if len(set.union(*decisions)) <= 1 and not damaged:
        return None
    newest = ", ".join(
        f"{folder.parent.name}: {max(own, default='none')}" for folder, own in zip(folders, decisions, strict=True)
    )
    raise UserError(
        f"the members of {folders[0].parent.parent} have no whole checkpoint of one decision in common "
        f"({newest}); go on with them one by one, such as: ubp2 train --resume {shlex.quote(str(folders[0].parent))}"
    )


def held(folder: Path) -> tuple[int, ...]:
    """Decisions of the checkpoints in a folder, whole or not."""
    return tuple(sorted(_decision(path) for path in _candidates(folder)))


def side_by_side(members: Sequence[Path]) -> list[list[Path]]:
    """The run folders of a program, apart where they have no decision in common: one that failed was left behind.

    A kill in the very first save leaves them together: all begin again.
    """
    decisions = [set(held(member / "checkpoints")) for member in members]
    if len(set[int]().union(*decisions)) <= 1:
        return [list(members)]
    groups: list[tuple[set[int], list[Path]]] = []
    for member, own in sorted(zip(members, decisions, strict=True), key=lambda each: -max(each[1], default=-1)):
        for common, some in groups:
            if common & own or not (common or own):
                common &= own
                some.append(member)
                break
        else:
            groups.append((set(own), [member]))
    return [sorted(some, key=members.index) for _, some in groups]


def drop_after(folder: Path, decision: int) -> bool:
    """Remove the checkpoints after `decision`, and say whether there were any.

    A run that goes back rewrites its databases, with which a newer checkpoint would no longer agree.
    """
    with disk_errors(folder, folder.parent):
        later = [path for path in _candidates(folder) if _decision(path) > decision]
        for path in later:
            _remove(path)
    return bool(later)


def _load_at(folder: Path, decision: int) -> Checkpoint | None:
    """The checkpoint of one decision; None, and set aside, if it is damaged."""
    for path in (path for path in _candidates(folder) if _decision(path) == decision):
        try:
            return _read(path)
        except _Damage as damage:
            _LOG.warning("checkpoint %s is damaged (%s): set aside, trying the one before it", path, damage)
            _set_aside(path)
    return None


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """Return the arrays and numbers in a pytree by their path; what is neither, such as a function, is left out."""
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves if _is_data(leaf)}


def unflatten(tree_like: Tree, arrays: Mapping[str, np.ndarray]) -> Tree:
    """Return `tree_like` with its arrays (or ShapeDtypeStructs) and numbers replaced by those of `flatten`."""
    import jax
    import jax.numpy as jnp

    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree_like)
    expected = {jax.tree_util.keystr(path): leaf for path, leaf in leaves if _is_data(leaf)}
    _check_names(expected, arrays)
    for name, leaf in expected.items():
        _check_array(name, leaf, arrays[name])

    def restore(name: str, leaf: Any) -> Any:
        if name not in expected:
            return leaf
        if isinstance(leaf, _NUMBER):
            return type(leaf)(arrays[name].item())
        # A copy: jax may alias the memory of a NumPy array, which donation would then reuse.
        return np.array(arrays[name]) if isinstance(leaf, np.ndarray | np.generic) else jnp.array(arrays[name])

    return jax.tree_util.tree_unflatten(treedef, [restore(jax.tree_util.keystr(path), leaf) for path, leaf in leaves])


def _is_data(leaf: Any) -> bool:
    return isinstance(leaf, _NUMBER) or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))


def _check_names(expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    for name in expected:
        if name not in found:
            raise _mismatch(f"it has no array {name}")
    for name in found:
        if name not in expected:
            raise _mismatch(f"its array {name} has no place in the agent")


def _check_array(name: str, leaf: Any, array: np.ndarray) -> None:
    if not hasattr(leaf, "shape"):
        leaf = np.asarray(leaf)
    if tuple(leaf.shape) != array.shape:
        raise _mismatch(f"array {name} has shape {array.shape} and the agent expects {tuple(leaf.shape)}")
    if leaf.dtype != array.dtype:
        raise _mismatch(f"array {name} has type {array.dtype} and the agent expects {leaf.dtype}")


def _mismatch(difference: str) -> UserError:
    return UserError(
        f"the checkpoint does not fit the agent: {difference}; the configuration or the version of ubp2 has probably "
        f"changed since it was written, so resume with those it was written with"
    )


def _write(folder: Path, decision: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    state = folder / "state.npz"
    with state.open("wb") as stream:
        # As numpy.savez does, but any key may be an array's name and pickle is refused.
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, value in arrays.items():
                array = np.asarray(value)
                if array.dtype.kind == "V":
                    raise TypeError(f"array {name} has type {array.dtype}, which a .npy file cannot name")
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        stream.flush()
        os.fsync(stream.fileno())
    body = {"format": FORMAT, "ubp2": __version__, "decision": decision, "state": _file_hash(state), "meta": dict(meta)}
    body = json.loads(json.dumps(body))
    with (folder / "manifest.json").open("w", encoding="utf-8") as stream:
        json.dump({"sha256": _manifest_hash(body), **body}, stream, indent=2)
        stream.flush()
        os.fsync(stream.fileno())
    _sync(folder)


def _put_in_place(partial: Path, path: Path) -> None:
    """Rename; an earlier one of the same decision steps aside for it under a name that `load_latest` also reads."""
    replaced = path.with_name(path.name + _REPLACED)
    if path.exists():
        if replaced.exists():
            _remove(replaced)
        path.rename(replaced)
    partial.rename(path)
    _sync(path.parent)
    if replaced.exists():
        _remove(replaced)


def _remove(path: Path) -> None:
    """Delete a checkpoint so that a kill halfway leaves something that looks temporary, not damaged."""
    rubbish = path.with_name(f"{_TEMPORARY}old-{path.name}")
    path.rename(rubbish)
    shutil.rmtree(rubbish, ignore_errors=True)  # what is left is a leftover, and no checkpoint any more


def _candidates(folder: Path) -> list[Path]:
    """Return the checkpoints in `folder`, newest first; of two of one decision the later written is first."""
    found = [path for path in folder.glob("[0-9]*") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (_decision(path), not path.name.endswith(_REPLACED)), reverse=True)


def _decision(path: Path) -> int:
    return int(path.name.removesuffix(_REPLACED))


def _read(path: Path) -> Checkpoint:
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        claimed = manifest.pop("sha256")
        if _manifest_hash(manifest) != claimed:
            raise _Damage("manifest.json does not match its hash")
        if manifest["format"] > FORMAT:
            raise UserError(
                f"{path} has format {manifest['format']}, written by ubp2 {manifest['ubp2']}, and this is ubp2 "
                f"{__version__}, which reads up to format {FORMAT}; resume with ubp2 {manifest['ubp2']} or newer"
            )
        if _file_hash(path / "state.npz") != manifest["state"]:
            raise _Damage("state.npz does not match its hash")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _Damage(f"{error.filename} is missing") from error
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise _Damage(f"manifest.json cannot be read: {error}") from error
    with np.load(path / "state.npz", allow_pickle=False) as state:
        arrays = dict(state)
    return Checkpoint(manifest["decision"], arrays, manifest["meta"], path)


def _set_aside(path: Path) -> None:
    """Rename to <name>.damaged, numbered if there is one; on a read-only disk it stays where it is."""
    target, count = path.with_name(path.name + _DAMAGED), 1
    while target.exists():
        count += 1
        target = path.with_name(f"{path.name}{_DAMAGED}-{count}")
    try:
        path.rename(target)
    except OSError as error:
        _LOG.warning("cannot set %s aside: %s", path, error)


def _manifest_hash(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _file_hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    """Put the names in a directory on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

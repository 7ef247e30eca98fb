"""Recorded episodes become questions: from run folders and from files, once, and of one environment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.labelling import crowd, processes
from ubp2.errors import UserError
from ubp2.labelling.dataset import prepare
from ubp2.preference.store import LabelStore
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.runs import Run


def test_questions_are_segments_of_the_recorded_episodes(tmp_path: Path) -> None:
    crowd.record(tmp_path / "one", episodes=3)
    crowd.record(tmp_path / "two", episodes=2)
    out = prepare([tmp_path / "one", tmp_path / "two"], tmp_path / "out", pairs=20, length=7)
    with EpisodeArchive(out / "episodes.sqlite") as archive, LabelStore(out / "labels.sqlite") as store:
        assert len(archive) == 5 and len(store.pending()) == 20
        for pending in store.pending():
            query = pending.query
            episode = archive.read(query.right_episode)
            assert np.array_equal(query.right_obs, episode.obs[query.right_start : query.right_start + 7])
            assert (query.left_episode, query.left_start) != (query.right_episode, query.right_start)
    assert Run.open(out).config.preferences.segment_length == 7


def test_the_same_command_again_keeps_questions_and_answers(tmp_path: Path) -> None:
    crowd.record(tmp_path / "one", episodes=2)
    out = prepare([tmp_path / "one"], tmp_path / "out", pairs=4, length=5)
    with LabelStore(out / "labels.sqlite") as store:
        store.answer(store.pending()[0].id, 1.0, annotator="ann", key="a")
    prepare([tmp_path / "one"], tmp_path / "out", pairs=4, length=5)
    with LabelStore(out / "labels.sqlite") as store:
        assert len(store.given()) == 1 and store.waiting() == 3
    with pytest.raises(UserError, match=r"another dataset: --pairs was 4 and is 9; --length was 5 and is 6; name ano"):
        prepare([tmp_path / "one"], out, pairs=9, length=6)
    with pytest.raises(UserError, match=r"does not say which dataset it was made of; .* ubp2 label .*one"):
        prepare([out], tmp_path / "one", pairs=4, length=5)


def test_files_of_arrays_need_no_environment(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", obs=np.random.rand(21, 3), action=np.random.rand(20, 2))
    out = prepare([tmp_path / "a.npz"], tmp_path / "out", pairs=3, length=5)
    assert Run.open(out).info()["custom_environment"] is True


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"obs": np.zeros((5, 2))}, "must hold the arrays"),
        ({"obs": np.zeros((5, 2)), "action": np.zeros((5, 1))}, r"obs must be \[T\+1, D\]"),
        ({"obs": np.zeros((5, 2)), "action": np.array([[1.0], [1.0], [np.inf], [1.0]])}, r"action\[2\] has a value"),
    ],
)
def test_wrong_files_are_told(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=message):
        prepare([tmp_path / "a.npz"], tmp_path / "out", pairs=3, length=2)


def test_files_that_are_no_arrays_are_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", obs=np.zeros((5, 2)), action=np.zeros((4, 1)))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:200])
    (tmp_path / "empty.npz").touch()
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    for name in ("cut", "empty", "one"):
        with pytest.raises(UserError, match=f"{name}.npz must hold the arrays"):
            prepare([tmp_path / f"{name}.npz"], tmp_path / "out", pairs=3, length=2)
    np.savez(tmp_path / "wide.npz", obs=np.zeros((5, 3)), action=np.zeros((4, 1)))
    with pytest.raises(UserError, match=r"one size each: .*whole.npz has 2 and 1 and .*wide.npz has 3 and 1"):
        prepare([tmp_path / "whole.npz", tmp_path / "wide.npz"], tmp_path / "out", pairs=3, length=2)


def test_too_long_segments_are_told(tmp_path: Path) -> None:
    crowd.record(tmp_path / "one", episodes=1)
    with pytest.raises(UserError, match="no two segments of 500 decisions"):
        prepare([tmp_path / "one"], tmp_path / "out", pairs=3, length=500)
    assert not (tmp_path / "out").exists(), "half a dataset is none"


def test_a_dataset_is_labelled_through_the_page_of_a_real_server(tmp_path: Path) -> None:
    crowd.record(tmp_path / "one", episodes=2)
    port = processes.free_port()
    flags = ("--dataset", str(tmp_path / "one"), "--pairs", "6", "--length", "5")
    process = processes.server(tmp_path / "out", port, *flags)
    try:
        with LabelStore(tmp_path / "out" / "labels.sqlite") as store:
            assert store.waiting() == 6
    finally:
        process.kill()

"""One worker: what is waited for, and what is kept of what it writes."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.envs import probes
from ubp2.config.schema import EnvironmentConfig
from ubp2.envs import worker
from ubp2.envs.base import Lost
from ubp2.envs.workers import make_vector

OPTIONS = EnvironmentConfig()


class Slow(probes.RewardOfAction):
    """Never stands, or never shows a frame."""

    def __init__(self, stands):
        super().__init__()
        if not stands:
            time.sleep(3600)

    def render(self):
        time.sleep(3600)
        return super().render()


def test_a_run_that_is_to_stop_waits_neither_for_a_start_nor_for_a_frame(monkeypatch):
    monkeypatch.setattr(worker, "STOPPING_PATIENCE", 0.1)
    with pytest.raises(Lost, match="gave no answer"):
        make_vector(partial(Slow, False), OPTIONS, 1, None, lambda: True)
    vector = make_vector(partial(Slow, True), OPTIONS, 1)
    vector.reset(0, 0)
    vector.heed(lambda: True)
    with pytest.raises(Lost, match="gave no answer"):
        vector.render(0)
    vector.close()


def test_patience_may_be_as_long_as_one_likes():
    vector = make_vector(probes.RewardOfAction, EnvironmentConfig(patience=1e12), 1)
    assert vector.reset(0, 0).shape == (vector.spec.obs_dim,)
    vector.close()


class Talking(probes.RewardOfAction):
    """Writes at each reset, and dies of its third."""

    def reset(self, *, seed=None, options=None):
        print("line\n" * 20_000, f"reset {seed}", sep="", flush=True)
        if seed == 3:
            os._exit(7)
        return super().reset(seed=seed)


def test_what_a_worker_writes_is_kept_within_bounds(monkeypatch):
    """And its path may hold folders that are no text."""
    monkeypatch.setattr(worker, "LONGEST", 50_000)
    monkeypatch.setattr(sys, "path", [*sys.path, Path("somewhere")])
    vector = make_vector(Talking, OPTIONS, 1)
    for seed in range(3):
        vector.reset(0, seed)
    assert os.fstat(vector._workers[0]._log.fileno()).st_size < 110_000  # type: ignore[attr-defined]
    with pytest.raises(Lost, match="exit code 7") as caught:
        vector.reset(0, 3)
    assert str(caught.value).endswith("reset 3")
    vector.close()

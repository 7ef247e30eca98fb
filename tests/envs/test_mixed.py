"""Vectors of unlike environments: sizes, several faults at once, and losses that cannot be made good."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.envs import probes
from ubp2.config.schema import EnvironmentConfig
from ubp2.envs.base import Faulty, Lost
from ubp2.envs.inline import EnvOrder
from ubp2.envs.workers import make_mixed
from ubp2.errors import UserError

OPTIONS = EnvironmentConfig()
INLINE = EnvironmentConfig(in_process=True)


class Once(probes.RewardOfAction):
    """Cannot be built once a file exists."""

    def __init__(self, path: str) -> None:
        super().__init__()
        if os.path.exists(path):
            raise RuntimeError("the room is locked")


def test_where_one_lost_worker_cannot_be_replaced_the_other_one_is(tmp_path: Path) -> None:
    """Its greeting is taken; otherwise it would be read in place of the answer to the next reset."""
    orders = [EnvOrder(partial(Once, str(tmp_path / "key")), OPTIONS), EnvOrder(probes.RewardOfAction, OPTIONS)]
    vector = make_mixed(orders)
    first = [vector.reset(index, 2) for index in range(2)]
    (tmp_path / "key").touch()
    for worker_ in vector._workers:  # type: ignore[attr-defined]
        os.kill(worker_.pid, signal.SIGKILL)
    with pytest.raises(Lost) as lost:
        vector.send(np.zeros((2, 1)))
        vector.receive()
    with pytest.raises(Faulty, match="the room is locked") as error:
        vector.revive(lost.value)
    assert [each.index for each in error.value.all] == [0]
    again = vector.reset(1, 7)
    assert not np.array_equal(again, first[1])
    np.testing.assert_array_equal(vector.reset(1, 2), first[1])
    vector.close()


def test_environments_of_unlike_sizes_are_refused_in_a_sentence() -> None:
    for options in (OPTIONS, INLINE):
        with pytest.raises(UserError, match="need equal sizes: .* has obs_dim 1, toy/reach has 4"):
            make_mixed([EnvOrder(probes.RewardOfAction, options), EnvOrder("toy/reach", options)])


def test_every_fault_of_a_step_is_told_and_the_others_have_answered() -> None:
    orders = [EnvOrder(kind, OPTIONS) for kind in (probes.NanReward, probes.RewardOfAction, probes.NanReward)]
    vector = make_mixed(orders)
    for index in range(3):
        vector.reset(index, index)
    vector.send(np.full((3, 1), 0.5))
    vector.receive()
    vector.send(np.full((3, 1), 0.5))
    with pytest.raises(Faulty) as error:
        vector.receive()
    assert [each.index for each in error.value.all] == [0, 2]
    assert error.value.step is not None and error.value.step.true_reward[1] == pytest.approx(-(0.2**2))
    vector.send(np.full((3, 1), 0.25), [1])
    assert vector.receive().true_reward[1] == pytest.approx(-(0.05**2))
    vector.close()

"""SURF: crops of pairs, and what members learn from pairs that nobody has answered."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.agents.helpers import (
    LENGTH,
    make_pairs,
    make_pebble,
    make_replay,
    normalised,
    numpy_members,
    replaced,
    with_sac,
)
from tests.conftest import ACTION, OBS, quick_jit
from ubp2 import replay as replay_
from ubp2.agents import surf
from ubp2.agents.registry import make_agent
from ubp2.config.schema import Config

KEY = jax.random.key(3)


def with_crop(config: Config, crop: int, **changes: Any) -> Config:
    preferences = replaced(config.preferences, crop=crop, segment_length=LENGTH, batch_size=8)
    return replaced(with_sac(config, **changes), agent="surf", preferences=preferences)


def test_crops_are_stretches_of_one_length_with_starts_of_their_own(config: Config) -> None:
    left, right = (np.asarray(side) for side in surf.crops(with_crop(config, 7), KEY, (3, 2000, 10)))
    sizes = left.sum(-1)
    np.testing.assert_array_equal(sizes, right.sum(-1))
    for side in (left, right):
        assert set(np.unique(side)) == {0.0, 1.0}
        assert np.abs(np.diff(side, prepend=0, append=0, axis=-1)).sum(-1).max() == 2, "in one piece"
    for size in range(7, 11):
        assert np.mean(sizes == size) == pytest.approx(0.25, abs=0.03)
        starts = left[sizes == size].argmax(-1)
        assert set(starts) == set(range(10 - size + 1))
    short = sizes == 7
    assert np.mean(left[short].argmax(-1) == right[short].argmax(-1)) == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("threshold", [0.5, 0.7, 1.0])
def test_members_learn_the_answers_that_they_are_sure_of(config: Config, threshold: float) -> None:
    """By going through the pairs one by one, in double precision."""
    own = with_crop(config, 2, surf_threshold=threshold, surf_ratio=3, surf_weight=0.5)
    state, replay = make_pebble(own), make_replay()
    loss = quick_jit(lambda members: surf.pseudo_loss(own, replay, members, state.sac.stats, KEY))(state.reward)
    k_draw, k_crop = jax.random.split(KEY)
    segments, _ = replay_.sample_segments(replay, k_draw, 48, LENGTH)
    rewards = np.tanh(numpy_members(state.reward, normalised(np.asarray(segments.obs)), np.asarray(segments.action)))
    crops = [np.asarray(side) for side in surf.crops(own, k_crop, (len(rewards), 24, LENGTH))]
    total, sure = 0.0, 0
    for member, kept_left, kept_right in zip(rewards, *crops, strict=True):
        for pair in range(24):
            left, right = member[pair], member[24 + pair]
            answer = np.sign(left.sum() - right.sum())
            if 1 / (1 + np.exp(-abs(left.sum() - right.sum()))) >= threshold:
                cropped = (left * kept_left[pair]).sum() - (right * kept_right[pair]).sum()
                total, sure = total + np.log1p(np.exp(-answer * cropped)) / 24, sure + 1
    assert {0.5: sure == rewards.shape[0] * 24, 0.7: 0 < sure < rewards.shape[0] * 24, 1.0: sure == 0}[threshold]
    assert float(loss) == pytest.approx(0.5 * total, rel=1e-3, abs=1e-7)


def test_without_a_place_for_a_segment_there_is_nothing_to_be_sure_of(config: Config) -> None:
    """Episodes so far may have been too short: what is drawn then means nothing."""
    own = with_crop(config, 2, surf_threshold=0.5)
    state, replay = make_pebble(own), make_replay()
    loss = quick_jit(lambda replay: surf.pseudo_loss(own, replay, state.reward, state.sac.stats, KEY))
    assert float(loss(replay)) > 0 and float(loss(replay._replace(total=jnp.int32(LENGTH)))) == 0


def test_the_fit_has_all_its_epochs_and_answers_its_labels(config: Config) -> None:
    """An accuracy ends that of PEBBLE; here there is more to learn than labels."""
    found = {}
    for name in ("pebble", "surf"):
        own = replaced(with_crop(config, 3, epochs=60, reset_updates=0), agent=name)
        own = replaced(own, training=replaced(own.training, learning_rate=3e-3))
        fit = make_agent(own, OBS, ACTION).fit
        assert fit is not None
        after, found[name] = quick_jit(fit)(make_pebble(own), make_replay(), make_pairs(), KEY)
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(after.reward))
    assert found["pebble"]["fit/epochs"] < 60 and found["surf"]["fit/epochs"] == 60
    assert found["surf"]["fit/accuracy"] > 0.9

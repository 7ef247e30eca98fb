"""PEBBLE: novelty, what SAC is paid, and the fit of the reward at a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.agents.helpers import (
    CAPACITY,
    LENGTH,
    ROWS,
    equal_trees,
    finite,
    make_batch,
    make_pairs,
    make_pebble,
    make_replay,
    normalised,
    numpy_members,
    replaced,
    uniform,
    with_sac,
)
from tests.conftest import ACTION, EPISODE, OBS, noisy, quick_jit
from ubp2.agents import bounded_reward, pebble, sac
from ubp2.agents.base import Agent
from ubp2.agents.pebble import State
from ubp2.agents.registry import make_agent
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.training import programs
from ubp2.training.member_axis import Layout, Settings, Sizes
from ubp2.training.records import Memory
from ubp2.types import Preferences, RewardTargets, Segments

KEY = jax.random.key(5)
EPOCHS = 200


def agent_of(config: Config, **changes: Any) -> Agent:
    """PEBBLE with other fields of the section `sac`."""
    return make_agent(with_sac(replaced(config, agent="pebble"), **changes), OBS, ACTION)


def fit_of(config: Config, **changes: Any) -> Callable[..., tuple[State, dict[str, Any]]]:
    fit = agent_of(config, **changes).fit
    assert fit is not None
    return quick_jit(fit)


@pytest.fixture(scope="module")
def state(config: Config) -> State:
    return make_pebble(config)


@pytest.fixture(scope="module")
def update(config: Config) -> Callable[..., tuple[State, dict[str, Any]]]:
    return quick_jit(agent_of(config).update)


@pytest.fixture(scope="module")
def fit(config: Config) -> Callable[..., tuple[State, dict[str, Any]]]:
    """Long fits, and no updates after the first: what `fit` changes is of the session alone."""
    return fit_of(config, epochs=EPOCHS, reset_updates=0)


def novelty_of(obs: Any, others: Any) -> np.ndarray:
    """Distance to the fifth nearest, by looking at all that there are."""
    others = np.asarray(others)[np.isfinite(others).all(axis=1)]
    gaps = normalised(np.asarray(obs, np.float64))[:, None] - normalised(np.asarray(others, np.float64))[None]
    return np.sort(np.linalg.norm(gaps, axis=-1), axis=1)[:, 4]


def reward_of(state: State, obs: Any, action: Any) -> np.ndarray:
    """What each member gives, in double precision: [E, ...]."""
    return np.tanh(numpy_members(state.reward, normalised(np.asarray(obs, np.float64)), np.asarray(action)))


def paid(metrics: dict[str, Any]) -> float:
    return float(metrics["reward/paid"])


def mean_where(mask: Any, values: np.ndarray) -> float:
    return float(values[np.asarray(mask) > 0].mean())


def test_novelty_is_the_distance_to_the_fifth_nearest() -> None:
    states, others = uniform(0, 40, 6), uniform(1, 70, 6)
    gaps = np.linalg.norm(states[:, None].astype(np.float64) - others[None], axis=-1)
    nowhere = jnp.zeros((40, 70), bool)
    np.testing.assert_allclose(pebble.novelty(states, others, nowhere), np.sort(gaps, axis=1)[:, 4], rtol=1e-4)


def test_a_state_is_no_neighbour_of_itself(state: State, update) -> None:
    """Wherever the minibatch says that it is; where fewer than five others are left, the farthest counts."""
    states = uniform(0, 8, 6)
    gaps = np.linalg.norm(states[:, None].astype(np.float64) - states[None], axis=-1)
    found = pebble.novelty(states, states, jnp.eye(8, dtype=bool))
    np.testing.assert_allclose(found, np.sort(gaps, axis=1)[:, 5], rtol=1e-4)
    few = pebble.novelty(states[:4], states[:4], jnp.eye(4, dtype=bool))
    np.testing.assert_allclose(few, gaps[:4, :4].max(axis=1), rtol=1e-4)
    batch = make_batch()
    slots = np.arange(ROWS)
    batch = batch._replace(index=slots[None], others=batch.obs[0], others_index=slots)
    _, metrics = update(state, batch, make_pairs(0), KEY)
    z = normalised(np.asarray(batch.obs[0], np.float64))
    own = np.sort(np.linalg.norm(z[:, None] - z[None], axis=-1), axis=1)[:, 5]
    real = np.asarray(batch.mask[0]) > 0
    assert paid(metrics) == pytest.approx(own[real].mean() / own[real].std(), rel=2e-3)


def of_one(config: Config, agent: Agent) -> tuple[Layout, Agent, Array, Settings]:
    """First arguments of a function of `training/programs.py`, for a run whose numbers are constants."""
    layout = Layout(config, ("uniform",), Sizes(OBS, ACTION, 10), (config,))
    return layout, agent, KEY, Settings(None, np.int32(0), np.int32(config.preferences.batch_size))  # type: ignore[arg-type]


def test_an_update_is_handed_every_state_of_a_small_replay_once(config: Config, state: State) -> None:
    """Copies of a state would be its nearest neighbours."""
    agent = agent_of(config, neighbours=60)._replace(update=lambda state, *_: (state, {}))
    memory = Memory(make_replay(), make_pairs(), None)
    update = quick_jit(partial(programs._update, *of_one(config, agent)))
    others = update(state, memory, np.int32(1), np.int32(0))[2].batch.others
    np.testing.assert_array_equal(others[:40], memory.replay.frames.obs)
    assert others.shape == (60, OBS) and np.isinf(others[40:]).all()


def test_a_minibatch_of_labels_is_not_halved_for_members(config: Config, state: State) -> None:
    """Members that are fitted at sessions take all labels; what learns between them takes them as they are."""
    halved = replaced(config, preferences=replaced(config.preferences, bootstrap=True))
    agent = agent_of(halved)._replace(update=lambda state, *_: (state, {}))
    update = quick_jit(partial(programs._update, *of_one(halved, agent)))
    seen = update(state, Memory(make_replay(), make_pairs(), None), np.int32(1), np.int32(0))[2].supervision
    assert seen.weight.shape == seen.label.shape


def test_novelty_is_finite_where_nothing_is_new() -> None:
    """Rounding can make a squared distance negative."""
    states = np.repeat(1e3 * uniform(2, 1, OBS), 20, axis=0)
    nowhere = np.zeros((20, 20), bool)
    found = np.asarray(pebble.novelty(states, states + 1e-4, nowhere))  # type: ignore[arg-type]
    assert np.isfinite(found).all() and (found >= 0).all() and found.max() < 2.0


def test_before_the_first_session_it_is_paid_novelty_over_its_running_deviation(state: State, update) -> None:
    """The deviation is that of all decisions so far, the present minibatch included, and none that do not exist.

    Nor do others that do not exist count as neighbours.
    """
    seen = np.zeros(0)
    for number in range(5):
        batch = make_batch(seed=number)
        others = (1.0 - 0.1 * number) * np.asarray(batch.others)
        others[30 - 4 * number :] = np.inf
        batch = batch._replace(obs=(1.0 + 0.3 * number) * batch.obs, others=others)
        state, metrics = update(state, batch, make_pairs(0), jax.random.key(number))
        found = novelty_of(batch.obs[0], batch.others)
        seen = np.concatenate([seen, found[np.asarray(batch.mask[0]) > 0]])
        assert paid(metrics) == pytest.approx(mean_where(batch.mask[0], found) / seen.std(), rel=2e-3)


def test_the_running_deviation_of_the_published_code(config: Config, state: State) -> None:
    """It starts at 1, and adds the share of new samples to the mean where it should multiply by it."""
    own = agent_of(config, compat="bpref-code")
    mean, var, count = 0.0, 1.0, 1e-4
    state, update = state._replace(novelty=own.init(KEY).novelty), quick_jit(own.update)
    for number in range(4):
        batch = make_batch(seed=number)
        state, metrics = update(state, batch, make_pairs(0), jax.random.key(number))
        found = novelty_of(batch.obs[0], batch.others)
        real = found[np.asarray(batch.mask[0]) > 0]
        total, gap = count + len(real), real.mean() - mean
        squares = var * count + real.var(ddof=1) * len(real) + gap**2 * count * len(real) / total
        mean, var, count = mean + gap + len(real) / total, squares / total, total
        assert paid(metrics) == pytest.approx(real.mean() / np.sqrt(var), rel=2e-3)


def test_each_of_two_seeds_is_paid_as_if_alone(state: State, config: Config) -> None:
    """One seeks novelty still, the other has had its labels."""
    states = [state, state._replace(sessions=jnp.int32(1))]
    update = agent_of(config).update
    batch, both = make_batch(), jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    ahead, metrics = quick_jit(jax.vmap(lambda own: update(own, batch, make_pairs(), KEY)))(both)
    for i, own in enumerate(states):
        after, alone = quick_jit(update)(own, batch, make_pairs(), KEY)
        assert float(metrics["reward/paid"][i]) == pytest.approx(paid(alone), rel=1e-4)
        np.testing.assert_allclose(ahead.novelty[i], after.novelty, rtol=1e-4)
    np.testing.assert_array_equal(ahead.novelty[1], state.novelty)


def test_after_it_the_mean_of_the_present_members_counts_at_once(state: State, update) -> None:
    """There is nothing to relabel: other members in the state are another reward in the same update."""
    state, batch = state._replace(sessions=jnp.int32(1)), make_batch()
    for number in range(3):
        now = state._replace(reward=noisy(state.reward, 0.5, seed=number))
        _, metrics = update(now, batch, make_pairs(), KEY)
        wanted = reward_of(now, batch.obs[0], batch.action[0]).mean(axis=0)
        assert paid(metrics) == pytest.approx(mean_where(batch.mask[0], wanted), rel=1e-3, abs=1e-4)


def test_sac_learns_from_exactly_what_it_is_paid(config: Config, state: State, update) -> None:
    """The critics after an update are those of SAC's own step on the members' mean."""
    state, batch = state._replace(sessions=jnp.int32(2)), make_batch()
    after, metrics = update(state, batch, make_pairs(), KEY)
    moved = sac.transitions(config, state.sac, batch)
    members = bounded_reward.rewards(state.reward, moved.z, moved.action)
    assert members.shape == (config.model.reward_members, ROWS)
    np.testing.assert_allclose(members, reward_of(state, batch.obs[0], batch.action[0]), rtol=2e-3, atol=1e-4)
    true, _ = update(state, batch, RewardTargets(jnp.mean(members, axis=0)[None]), KEY)
    for a, b in zip(jax.tree.leaves(after.sac), jax.tree.leaves(true.sac), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert equal_trees(after.reward, state.reward), "the reward learns at sessions"
    assert finite(metrics)


def accuracy(state: State, pairs: Preferences) -> np.ndarray:
    """Share of the comparisons that each member has right: [E]."""
    left, right = (
        reward_of(state, obs, action).sum(-1)
        for obs, action in ((pairs.left_obs, pairs.left_action), (pairs.right_obs, pairs.right_action))
    )
    count = int(pairs.count)
    return ((left > right) == (np.asarray(pairs.label) > 0.5))[:, :count].mean(axis=1)


def test_a_fit_orders_the_comparisons_and_stops_there(config: Config, state: State, fit) -> None:
    pairs = make_pairs()
    assert accuracy(state, pairs).mean() < 0.9, "there must be something to learn"
    after, metrics = fit(state, make_replay(), pairs, KEY)
    assert float(metrics["fit/accuracy"]) > 0.97 and 0 < float(metrics["fit/epochs"]) < EPOCHS
    assert accuracy(after, pairs).mean() > 0.97
    assert int(after.sessions) == 1 and finite(after)
    again, metrics = fit(after, make_replay(), pairs, KEY)
    assert float(metrics["fit/epochs"]) < 5, "it goes on from what it knows"
    assert int(again.sessions) == 2


def test_members_stay_different(config: Config, state: State, fit) -> None:
    after, _ = fit(state, make_replay(), make_pairs(), KEY)
    obs, action = uniform(20, 200, OBS), uniform(21, 200, ACTION)
    members = reward_of(after, obs, action)
    for i in range(len(members)):
        for j in range(i):
            assert np.corrcoef(members[i], members[j])[0, 1] < 0.995 and np.abs(members[i] - members[j]).mean() > 0.02


def test_a_fit_ends_at_its_most_epochs(config: Config, state: State) -> None:
    """Without a wanted accuracy, and with labels that nobody can learn."""
    endless = replaced(config, preferences=replaced(config.preferences, stop_accuracy=None))
    _, metrics = fit_of(endless, epochs=7, reset_updates=0)(state, make_replay(), make_pairs(), KEY)
    assert float(metrics["fit/epochs"]) == 7
    pairs = make_pairs()
    alike: Any = [np.repeat(rows[:1], CAPACITY, axis=0) for rows in pairs[:4]] + list(pairs[4:])
    contrary = Preferences._make(alike)
    contrary = contrary._replace(label=(np.arange(CAPACITY) % 2).astype(np.float32))  # type: ignore[arg-type]
    _, metrics = fit_of(config, epochs=7, reset_updates=0)(state, make_replay(), contrary, KEY)
    assert float(metrics["fit/epochs"]) == 7 and float(metrics["fit/accuracy"]) < 0.97


def poisoned(pairs: Preferences, where: np.ndarray, weight: float) -> Preferences:
    """Other rows hold nonsense as large as it gets, with a label that would matter."""

    def spoil(rows: Any, value: float) -> Any:
        rows = np.array(rows)
        rows[where] = value
        return rows

    left_obs, left_action, right_obs, right_action, label, old, count = pairs
    return Preferences(
        spoil(left_obs, 1e6),
        spoil(left_action, -1e6),
        spoil(right_obs, -1e6),
        spoil(right_action, 1e6),
        spoil(label, 1.0),
        spoil(old, weight),
        count,
    )


def test_rows_that_are_not_filled_have_no_influence(state: State, fit) -> None:
    """Whatever stands there, also a weight. 21 labels in minibatches of 8 leave some padding too."""
    pairs = make_pairs(21)
    clean, metrics = fit(state, make_replay(), pairs, KEY)
    other, same = fit(state, make_replay(), poisoned(pairs, np.arange(CAPACITY) >= 21, 50.0), KEY)
    assert equal_trees(clean, other) and equal_trees(metrics, same) and finite(clean)


def test_labels_of_weight_zero_have_no_influence(state: State, fit) -> None:
    pairs, skipped = make_pairs(), np.isin(np.arange(CAPACITY), (0, 5, 6, 23))
    none = pairs._replace(weight=np.where(skipped, 0.0, pairs.weight).astype(np.float32))  # type: ignore[arg-type]
    clean, metrics = fit(state, make_replay(), none, KEY)
    other, same = fit(state, make_replay(), poisoned(none, skipped, 0.0), KEY)
    assert equal_trees(clean, other) and equal_trees(metrics, same) and finite(clean)
    assert float(metrics["fit/accuracy"]) > 0.97, "they do not count as mistakes"
    kept, _ = fit(state, make_replay(), pairs, KEY)
    assert not equal_trees(kept.reward, clean.reward), "with a weight they would have"


def test_without_any_label_a_fit_leaves_the_reward_alone(state: State, fit) -> None:
    after, _ = fit(state, make_replay(), make_pairs(0), KEY)
    assert equal_trees(after.reward, state.reward) and finite(after)


def test_critics_start_anew_at_the_first_session_only(state: State, fit) -> None:
    """Policy, temperature and their optimisers stay as they are."""
    first, _ = fit(state, make_replay(), make_pairs(), KEY)
    assert not equal_trees(first.sac.critics, state.sac.critics)
    assert equal_trees(first.sac.critics, first.sac.targets)
    kept = ("policy", "log_alpha", "policy_optimizer", "alpha_optimizer", "stats", "updates")
    assert equal_trees([getattr(first.sac, n) for n in kept], [getattr(state.sac, n) for n in kept])
    second, _ = fit(first, make_replay(), make_pairs(seed=1), jax.random.key(6))
    assert equal_trees(second.sac, first.sac) and not equal_trees(second.reward, first.reward)


def test_some_updates_follow_the_first_session(config: Config, state: State) -> None:
    """On critics as new and on a policy that goes on from where it was."""
    fit = fit_of(config, epochs=1, reset_updates=5)
    first, _ = fit(state, make_replay(), make_pairs(), KEY)
    assert int(first.sac.updates) == int(state.sac.updates) + 5 and finite(first)
    steps = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), first.sac.policy, state.sac.policy)
    most = 6 * 5 * config.training.learning_rate  # Adam's steps are not much larger than its rate
    assert 0 < max(jax.tree.leaves(steps)) < most
    second, _ = fit(first, make_replay(), make_pairs(), KEY)
    assert int(second.sac.updates) == int(first.sac.updates)


def test_returns_and_predictions_are_those_of_the_members(config: Config, state: State) -> None:
    agent, pairs = agent_of(config), make_pairs()
    wanted = reward_of(state, pairs.left_obs, pairs.left_action)
    nowhere = np.zeros(CAPACITY, np.int32)
    segments = Segments(pairs.left_obs, pairs.left_action, nowhere, nowhere)  # type: ignore[arg-type]
    found = agent.segment_returns(state, segments)
    assert found.shape == (config.model.reward_members, CAPACITY) and wanted.shape[-1] == LENGTH
    np.testing.assert_allclose(found, wanted.sum(-1), rtol=2e-3, atol=1e-3)
    obs, action = uniform(20, 9, OBS), uniform(21, 9, ACTION)
    predicted = agent.predict_reward(state, obs, action)
    np.testing.assert_allclose(predicted, reward_of(state, obs, action).mean(0), rtol=2e-3, atol=1e-3)


def test_there_is_nothing_to_plan_with() -> None:
    """Evaluation has the policy alone, and a sub-sequence is one decision."""
    config = resolve(Config(agent="pebble"), EPISODE)
    assert config.evaluation.controllers == ("policy",) and config.training.horizon == 1

"""Where the three bonuses are high and where they are low: a plane of which the agent has seen one part.

    python benchmarks/uncertainty.py             # every setting of the reward's fit, a quarter of an hour on two cores
    python benchmarks/plot_uncertainty.py        # the figure and the tables of docs/uncertainty.md

A point walks in a ring around the origin and never leaves it; the oracle compares segments of the ring's right half
alone. The agent's own update learns from that, and the bonuses are read on a grid over the whole plane. Writes
benchmarks/results/uncertainty.json (means near the data and away from it) and uncertainty.npz (the maps).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2 import replay as replay_
from ubp2.agents import learning
from ubp2.agents.base import Agent
from ubp2.agents.registry import make_agent
from ubp2.bench.report import Report
from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config, given
from ubp2.models import world_model
from ubp2.preference import buffer
from ubp2.preference.teachers import oracle
from ubp2.replay import Replay
from ubp2.types import Episode, Preferences

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "uncertainty.json"

BONUSES = ("reward", "dynamics", "value")
EPISODES, DECISIONS = 100, 25
FEW, MANY = 40, 400  # labels
CHUNK = 500  # updates in one call
DRAWN = ("best", "noise integrated out")  # rows of the figure
REACH = 2.0  # the plane that is looked at: [-2, 2]^2
NEAR, AWAY = 0.15, 0.4  # distances from the nearest state of the data; what lies between belongs to neither
SATURATED = 0.95  # of |mean reward|, which the tanh head bounds by one

# What differs from the preset `demo` with Bradley-Terry on the mean: fields of `model` and `preferences`.
BEST = {"reward_head": "linear", "reward_inputs": "state", "reward_units": "replay"}
SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "best": {"model": BEST},
    "best, raw units": {"model": BEST | {"reward_units": "raw"}},
    "best, bootstrap": {"model": BEST, "preferences": {"bootstrap": True}},
    "best, anchor 1": {"model": BEST, "preferences": {"anchor": 1.0}},
    "best, smoothing 0.1, no stop": {"model": BEST, "preferences": {"smoothing": 0.1, "stop_accuracy": None}},
    "tanh of state and action, raw units": {},
    "noise integrated out": {"model": {"reward_likelihood": "marginal"}},
    "paper": {"model": {"reward_log_std": (-4.0, 1.0)}, "preferences": {"stop_accuracy": None, "center": 0.0}},
}


class Data(NamedTuple):
    """What one seed has seen and been told."""

    replay: Replay
    preferences: Preferences  # capacity MANY, in the order in which they were asked
    visited: np.ndarray  # [T, 2] every state of the replay
    fresh: Preferences  # comparisons of the same kind that are never learned from


class Survey(NamedTuple):
    """An agent's opinions at the points of a grid [G], means over random actions."""

    bonus: Array  # [3, G]
    mean: Array  # [E, G] reward of each member
    std: Array  # [G] noise that members see in the reward, mean over members
    accuracy: Array  # [] of the mean over members, on fresh comparisons


def radius(position: np.ndarray) -> np.ndarray:
    """Distance from the origin."""
    return np.linalg.norm(position, axis=-1)


def in_ring(position: np.ndarray) -> np.ndarray:
    """Where the agent has been."""
    return (radius(position) > 0.6) & (radius(position) < 1.4)


def is_shown(position: np.ndarray) -> np.ndarray:
    """Where the teacher was asked."""
    return in_ring(position) & (position[..., 0] > 0.2)


def move(position: np.ndarray, action: np.ndarray) -> np.ndarray:
    """A step along the action, and a swirl around the origin whose sense depends on the distance from it."""
    swirl = np.stack([-position[..., 1], position[..., 0]], axis=-1) * np.sin(4.0 * radius(position))[..., None]
    return position + 0.12 * action + 0.06 * swirl


def true_reward(position: np.ndarray) -> np.ndarray:
    """Hills and valleys, two of each in reach."""
    return np.sin(2.2 * position[..., 0]) * np.cos(1.6 * position[..., 1])


def walk(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Random decisions that stay in the ring: observations [T + 1, 2] and actions [T, 2]."""
    start = rng.uniform(-REACH, REACH, (100, 2))
    obs, actions = [start[np.argmax(in_ring(start))]], []
    for _ in range(DECISIONS):
        options = rng.uniform(-1.0, 1.0, (100, 2))
        after = move(obs[-1], options)
        chosen = np.argmax(in_ring(after))
        obs.append(after[chosen])
        actions.append(options[chosen])
    return np.array(obs, np.float32), np.array(actions, np.float32)


def compare(rng: np.random.Generator, obs: np.ndarray, action: np.ndarray, count: int) -> Preferences:
    """Random pairs of segments [N, L, 2], answered by the oracle."""
    left, right = rng.integers(0, len(obs), (2, count))
    rewards = true_reward(obs)
    label, weight = oracle(0, rewards[left], rewards[right])
    sides = (obs[left], action[left], obs[right], action[right], label, weight)
    return Preferences(*(jnp.asarray(side, jnp.float32) for side in sides), count=jnp.int32(count))


def gather(seed: int, length: int) -> Data:
    """Episodes in the ring and comparisons of segments of its right half."""
    rng = np.random.default_rng(seed)
    walks = [walk(rng) for _ in range(EPISODES)]
    unknown = np.zeros(DECISIONS)  # the replay takes neither reward nor success
    episodes = [Episode(i, i, *each, unknown, unknown.astype(bool), False) for i, each in enumerate(walks)]
    starts = range(DECISIONS - length + 1)
    cuts = [(obs[t : t + length], action[t : t + length]) for obs, action in walks for t in starts]
    obs, action = (np.stack(part) for part in zip(*(cut for cut in cuts if is_shown(cut[0]).all()), strict=True))
    visited = np.concatenate([obs for obs, _ in walks])
    replay = replay_.load(replay_.init(len(visited), 2, 2), episodes)
    return Data(replay, compare(rng, obs, action, MANY), visited, compare(rng, obs, action, MANY))


def make_config(setting: Mapping[str, Mapping[str, Any]]) -> Config:
    """The preset `demo` with smaller minibatches, all the reward members of the defaults, and one way to fit them."""
    base = preset("demo")
    own = {
        "model": {"reward_members": Config().model.reward_members, "reward_likelihood": "mean"},
        "preferences": {"batch_size": 16},
        "training": {"batch_size": 32, "discount": 0.9},
    }
    sections = {
        name: dataclasses.replace(getattr(base, name), **{**fields, **setting.get(name, {})})
        for name, fields in own.items()
    }
    return resolve(dataclasses.replace(base, **sections), DECISIONS)


def start(agent: Agent, data: Data, key: Array) -> Any:
    """A fresh state that has seen every observation of the replay."""
    state = agent.init(key)
    seen, _ = jax.lax.scan(lambda seen, obs: (agent.observe(seen, obs), None), agent.seen(state), data.visited)
    return agent.with_seen(state, seen)


def learn(config: Config, agent: Agent, updates: int, state: Any, data: Data, key: Array) -> Any:
    """So many gradient steps on everything, each on a minibatch of the replay and one of the labels."""
    members = config.model.reward_members if config.preferences.bootstrap else None

    def step(state: Any, key: Array) -> tuple[Any, None]:
        k_batch, k_pairs, k_update = jax.random.split(key, 3)
        batch = replay_.sample(data.replay, k_batch, config.training.batch_size, given(config.training.horizon))
        pairs = buffer.sample(data.preferences, k_pairs, config.preferences.batch_size, members)
        return agent.update(state, batch, pairs, k_update)[0], None

    return jax.lax.scan(step, state, jax.random.split(key, updates))[0]


def survey(config: Config, agent: Agent, grid: np.ndarray, state: Any, data: Data) -> Survey:
    """The three bonuses and the rewards over the grid, and how well unseen comparisons are answered."""
    actions = jax.random.uniform(jax.random.key(0), (8, 2), minval=-1.0, maxval=1.0)
    z = world_model.encode(config.model, state.model, state.stats, grid)

    def at(action: Array) -> tuple[Array, Array, Array]:
        same = jnp.broadcast_to(action, z.shape)
        mean, log_std = world_model.reward(config.model, state.model, z, same)
        return (
            learning.uncertainties(config, state.model, state.reward_units, z, same),
            mean,
            jnp.mean(jnp.exp(log_std), axis=0),
        )

    opinions = jax.tree.map(lambda x: jnp.mean(x, axis=0), jax.vmap(at)(actions))
    fresh = data.fresh
    left, right = (
        jnp.sum(agent.predict_reward(state, obs.reshape(-1, 2), action.reshape(-1, 2)).reshape(action.shape[:2]), 1)
        for obs, action in (fresh[:2], fresh[2:4])
    )
    return Survey(*opinions, jnp.mean((left > right) == (fresh.label > 0.5)))


def grid_points(side: int) -> np.ndarray:
    """The plane as [side * side, 2] points, row by row from below."""
    axis = np.linspace(-REACH, REACH, side, dtype=np.float32)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def asked(data: Data, labels: int) -> np.ndarray:
    """Every state of the first so many comparisons, [N, 2]."""
    return np.concatenate([data.preferences.left_obs[:labels], data.preferences.right_obs[:labels]]).reshape(-1, 2)


def distance(points: np.ndarray, states: np.ndarray) -> np.ndarray:
    """From each point [G, 2] to the nearest of the states [N, 2]."""
    return np.sqrt(np.min(np.sum((points[:, None] - states[None]) ** 2, axis=-1), axis=1))


def contrast(values: np.ndarray, far: np.ndarray) -> dict[str, float]:
    """Mean near the data, mean away from it, and how many times larger the second is."""
    near, away = float(np.mean(values[far < NEAR])), float(np.mean(values[far > AWAY]))
    return {"near": near, "away": away, "ratio": away / max(near, 1e-9)}


def summary(found: Survey, data: Data, grid: np.ndarray) -> dict[str, Any]:
    """What the raw file keeps of one survey. The reward's data are the labelled states, that of the others all."""
    from_labels, from_visits = distance(grid, asked(data, FEW)), distance(grid, data.visited)
    mean = np.asarray(found.mean)
    return {
        **{name: contrast(found.bonus[i], from_visits if i else from_labels) for i, name in enumerate(BONUSES)},
        "reward_spread": contrast(np.std(mean, axis=0), from_labels),
        "reward_std": contrast(found.std, from_labels),
        "saturated": float(np.mean(np.abs(mean) > SATURATED)),
        "accuracy": float(found.accuracy),
    }


class Study:
    """One setting of the fit for several seeds at once: compiled once, whatever the number of labels."""

    def __init__(self, config: Config, seeds: Sequence[int], grid: np.ndarray) -> None:
        agent = make_agent(config, 2, 2)
        self.data = [gather(seed, config.preferences.segment_length) for seed in seeds]
        self._keys = jnp.stack([jax.random.key(seed) for seed in seeds])
        self._start = jax.jit(jax.vmap(lambda data, key: start(agent, data, key)))
        self._learn = jax.jit(
            jax.vmap(lambda state, data, key: learn(config, agent, CHUNK, state, data, key)), donate_argnums=0
        )
        self._survey = jax.jit(jax.vmap(lambda state, data: survey(config, agent, grid, state, data)))

    def run(self, labels: int, moments: Sequence[int]) -> dict[int, Survey]:
        """Learn from the first so many labels; surveys [S, ...] after these numbers of updates."""
        data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *self.data)
        count = jnp.full(len(self.data), labels, jnp.int32)
        data = data._replace(preferences=data.preferences._replace(count=count))
        state, surveys = self._start(data, self._keys), {}
        for done in range(0, max(moments) + 1, CHUNK):
            if done in moments:
                surveys[done] = jax.device_get(self._survey(state, data))
            if done < max(moments):
                keys = jax.vmap(lambda key: jax.random.fold_in(key, done + 1))(self._keys)  # noqa: B023 (used at once)
                state = self._learn(state, data, keys)
        return surveys


def measure(names: Sequence[str], seeds: Sequence[int], updates: int, side: int, out: Path) -> None:
    """Every setting with FEW labels; those of the figure also with none and with MANY."""
    grid, rows, maps = grid_points(side), [], {}
    for name in names:
        study = Study(make_config(SETTINGS[name]), seeds, grid)
        for labels in (0, FEW, MANY) if name in DRAWN else (FEW,):
            for done, found in study.run(labels, [0, CHUNK, updates]).items():
                each = [jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(len(seeds))]
                for seed, own, data in zip(seeds, each, study.data, strict=True):
                    rows.append(
                        {"setting": name, "labels": labels, "updates": done, "seed": seed, **summary(own, data, grid)}
                    )
                if name in DRAWN and done in (0, updates):
                    maps[f"{name}/{labels if done else 'start'}"] = found.bonus[0].astype(np.float16)  # of one seed
        print(json.dumps(rows[-1]), flush=True)
    data = gather(seeds[0], preset("demo").preferences.segment_length)
    report = Report("uncertainty", {"uncertainty": rows}).data([])
    report["command"] = shlex.join(["python", "benchmarks/uncertainty.py", *sys.argv[1:]])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    segments = np.stack([data.preferences.left_obs, data.preferences.right_obs], axis=1)
    np.savez_compressed(out.with_suffix(".npz"), visited=data.visited, segments=segments, **maps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=5000)
    parser.add_argument("--side", type=int, default=61, help="points along each axis of the maps")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.updates < CHUNK or args.updates % CHUNK:
        parser.error(f"--updates must be a multiple of {CHUNK}, got {args.updates}")
    measure(args.settings, args.seeds, args.updates, args.side, args.results)


if __name__ == "__main__":
    main()

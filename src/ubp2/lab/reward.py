"""The laboratory of the reward model: every setting fitted to the same labels, and measured on held-out episodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.lab import measures, pairs
from ubp2.lab.fit import Judgement, Probe, Recorded, fit_and_judge
from ubp2.lab.options import Reward
from ubp2.lab.report import Results, Trial
from ubp2.lab.subject import Subject
from ubp2.preference.teachers import Situation, Teacher, make_teacher, oracle
from ubp2.replay import Replay
from ubp2.types import Episode, Preferences

__all__ = ["study"]

STATES = 5000  # held-out states that are asked, drawn at random where there are more
PAIRS = 1000  # pairs of held-out segments
STREAMS = {"labels": 1, "pairs": 2, "fit": 3}


def study(what: Reward, subject: Subject, say: Callable[[str], None]) -> Results:
    """Fit and measure every setting at every number of labels; `say` is told how far it has come."""
    recorded = Recorded(pairs.fill(subject.training), pairs.observed(subject.training))
    workbench = _Workbench(what, subject, recorded, pairs.fill(subject.held_out))
    trials: list[Trial] = []
    for number, (name, config) in enumerate(subject.configs.items(), 1):
        started = time.perf_counter()
        trials += workbench.trials(name, config)
        seconds = time.perf_counter() - started
        say(f"{number}/{len(subject.configs)} {name}: {seconds:.1f} s")
    return Results(what, subject.settings, trials, len(subject.training), len(subject.held_out))


class _Workbench:
    """What all settings share, so that they differ in nothing but themselves."""

    def __init__(self, what: Reward, subject: Subject, recorded: Recorded, held_out: Replay) -> None:
        self.what, self.subject, self.recorded, self.held_out = what, subject, recorded, held_out
        self.root = jax.random.key(np.uint32(what.seed & 0xFFFFFFFF))
        self.states = _states(subject.held_out, np.asarray(recorded.stats.mean), what.seed)

    def key(self, stream: str) -> Array:
        """A key for one purpose, the same for every setting."""
        return jax.random.fold_in(self.root, STREAMS[stream])

    def trials(self, name: str, config: Config) -> Iterator[Trial]:
        """One setting: compiled once, then run for each number of labels."""
        what = self.what
        labels = self._labels(config)
        probe, truth = self._probe(name, config)
        keys = jax.random.split(self.key("fit"), what.repeats)
        program = jax.jit(partial(fit_and_judge, config, what.updates))
        compiled = program.lower(self.recorded, probe, labels, keys).compile()
        for count in what.labels:
            started = time.perf_counter()
            judged: Judgement = jax.device_get(compiled(self.recorded, probe, pairs.take(labels, count), keys))
            seconds = (time.perf_counter() - started) / what.repeats
            for repeat in range(what.repeats):
                own = jax.tree.map(lambda x, repeat=repeat: x[repeat], judged)
                columns = {**measures.measures(own, *truth), "seconds": seconds}
                yield Trial(name, count, repeat, columns, measures.reliability(own.probability, truth[1]))

    def _labels(self, config: Config) -> Preferences:
        """Labelled pairs of every repeat [R, P, ...]; fewer labels are the first of more."""
        length, episodes = config.preferences.segment_length, self.subject.training
        recent_return = float(np.mean([episode.true_reward.sum() for episode in episodes]))
        teacher = _in_sessions(config, recent_return, max(len(episode.action) for episode in episodes))
        of, most = (self.recorded.replay, episodes), max(self.what.labels)
        keys = jax.random.split(self.key("labels"), self.what.repeats)
        own = [pairs.draw(*of, most, length, teacher, key) for key in keys]
        return jax.tree.map(lambda *rows: jnp.stack(rows), *own)

    def _probe(self, name: str, config: Config) -> tuple[Probe, tuple[np.ndarray, np.ndarray]]:
        """Where the setting is asked, and the truth there: reward of the states, answers to the pairs but for ties."""
        length = config.preferences.segment_length
        drawn = pairs.draw(self.held_out, self.subject.held_out, PAIRS, length, oracle, self.key("pairs"))
        label = np.asarray(drawn.label)
        decided = np.flatnonzero(label != 0.5)
        if not decided.size:
            raise UserError(
                f"setting '{name}': all {PAIRS} pairs of held-out segments are ties, so no answer can be right or "
                f"wrong; take runs that reach more of the reward, or another --seed"
            )
        kept = drawn._replace(**{field: getattr(drawn, field)[decided] for field in drawn._fields[:6]})
        return Probe(*self.states[:4], pairs=kept), (self.states.reward, label[decided])


def _in_sessions(config: Config, recent_return: float, episode_length: int) -> Teacher:
    """The teacher of a run: each session's pairs are answered as in that session, the first included."""

    def respond(key_seed: int, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size, answers = config.preferences.per_session, []
        for session, start in enumerate(range(0, len(left), size)):
            teacher = make_teacher(config.teacher, Situation(session, recent_return, episode_length))
            own = slice(start, start + size)
            answers.append(teacher(key_seed + session, left[own], right[own]))
        label, weight = (np.concatenate(part) for part in zip(*answers, strict=True))
        return label, weight

    return respond


class _States(NamedTuple):
    """Visited states and others off the data, with the true reward of the visited ones."""

    obs: Array  # [N, D]
    action: Array  # [N, A]
    off_obs: Array  # [N, D]
    off_action: Array  # [N, A]
    reward: np.ndarray  # [N]


def _states(episodes: Sequence[Episode], mean: np.ndarray, seed: int) -> _States:
    """At most `STATES` states of the episodes, and as many that none of them holds."""
    rng = np.random.default_rng([seed, 1])
    obs = np.concatenate([episode.obs[:-1] for episode in episodes])
    action = np.concatenate([episode.action for episode in episodes])
    reward = np.concatenate([episode.true_reward for episode in episodes])
    some = rng.permutation(len(reward))[:STATES]
    off_obs = measures.off_data(obs[some], mean, rng)
    off_action = rng.uniform(-1, 1, action[some].shape).astype(np.float32)
    asked = (jnp.asarray(x) for x in (obs[some], action[some], off_obs, off_action))
    return _States(*asked, reward=reward[some])

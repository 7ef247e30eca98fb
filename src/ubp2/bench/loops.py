"""PEBBLE as its published code has it: a loop over members or critics, minibatch by minibatch, from arrays of the host.

Every forward and backward pass of a network is a call of its own, compiled, and what a network computes is that of the
package. It is the measure for what `ubp2 bench pebble` gains by batching.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from ubp2.agents import sac
from ubp2.agents.gradients import adam, descend
from ubp2.agents.sac import Transitions
from ubp2.bench.timing import jit
from ubp2.config.schema import Config, given
from ubp2.models import losses, normalizer
from ubp2.models.networks import MLP, compute_type, weights_as
from ubp2.models.normalizer import Normalizer
from ubp2.types import Preferences

__all__ = ["CHUNK", "Learner", "SoftActorCritic", "apart", "learners", "make_fit", "make_relabel"]

CHUNK = 200  # transitions that are relabelled at a time


class Learner(NamedTuple):
    """A network of its own with its optimiser."""

    network: MLP
    moments: optax.OptState


def apart(ensemble: MLP) -> list[MLP]:
    """The members of an ensemble, each with arrays of its own."""
    return [jax.tree.map(lambda p, i=i: p[i], ensemble) for i in range(len(ensemble.biases[0]))]


def learners(optimizer: optax.GradientTransformation, ensemble: MLP) -> list[Learner]:
    """Members with optimisers that have seen nothing yet."""
    return [Learner(network, optimizer.init(cast(Any, network))) for network in apart(ensemble)]


def _reward(config: Config, member: MLP, stats: Normalizer, obs: Array, action: Array) -> Array:
    z = normalizer.normalize(config.model, stats, obs)
    return jnp.tanh(member(jnp.concatenate([z, action], -1))[..., 0])


def make_fit(config: Config) -> Any:
    """A function: learners, statistics, labels on the host, orders [epochs][E, P] -> learners, share that was right."""

    def loss(member: MLP, stats: Normalizer, pairs: Preferences) -> tuple[Array, Array]:
        left, right = (jnp.sum(_reward(config, member, stats, *side), -1) for side in (pairs[:2], pairs[2:4]))
        return losses.preference_loss(left - right, pairs.label, pairs.weight)

    @jit
    def step(own: Learner, stats: Normalizer, pairs: Preferences) -> tuple[Learner, Array]:
        (_, right), gradient = jax.value_and_grad(loss, has_aux=True)(own.network, stats, pairs)
        return Learner(*descend(adam(config), gradient, own.moments, own.network)), right

    def fit(
        members: list[Learner], stats: Normalizer, labels: Preferences, orders: Iterable[np.ndarray]
    ) -> tuple[list[Learner], float]:
        count, members, share = int(labels.count), list(members), 0.0
        for order in orders:
            share = 0.0
            for start in range(0, count, config.preferences.batch_size):
                for i, member in enumerate(members):
                    chosen = order[i, start : min(start + config.preferences.batch_size, count)]
                    pairs = Preferences(*(field[chosen] for field in labels[:6]), count=labels.count)
                    members[i], right = step(member, stats, pairs)
                    share += float(right) * len(chosen) / (count * len(members))
        return members, share

    return fit


def make_relabel(config: Config) -> Any:
    """A function: members, statistics, observations [N, D] and actions [N, A] of the host -> mean rewards [N] there."""
    judge = jit(partial(_reward, config))

    def relabel(members: list[MLP], stats: Normalizer, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        rewards = np.empty(len(obs), np.float32)
        for start in range(0, len(obs), CHUNK):
            rows = slice(start, start + CHUNK)
            told = [np.asarray(judge(member, stats, obs[rows], action[rows])) for member in members]
            rewards[rows] = np.mean(told, axis=0)
        return rewards

    return relabel


class SoftActorCritic:
    """SAC with critics, their targets and the policy as networks of their own; `learn` is one gradient step on all."""

    def __init__(self, config: Config, state: sac.State) -> None:
        rate = optax.adam(config.training.learning_rate)
        self._alpha_rate = optax.adam(config.sac.alpha_learning_rate)
        self._config = config
        self.critics = learners(rate, state.critics)
        self.targets = apart(state.targets)
        self.policy = Learner(jax.tree.map(jnp.copy, state.policy), rate.init(cast(Any, state.policy)))
        self.log_alpha, self._alpha_moments = state.log_alpha, self._alpha_rate.init(state.log_alpha)
        self.updates = 0
        self._compile(rate)

    def _compile(self, rate: optax.GradientTransformation) -> None:
        """One compiled function for each call that the published code makes of a network."""
        config, light = self._config, partial(weights_as, dtype=compute_type(self._config.model))

        def value(critic: MLP, z: Array, action: Array) -> Array:
            return light(critic)(jnp.concatenate([z, action], -1))[..., 0]

        def critic_loss(critic: MLP, moved: Transitions, target: Array) -> Array:
            return losses.masked_mean((value(critic, moved.z, moved.action) - target) ** 2, moved.mask)

        def policy_loss(policy: MLP, critics: list[MLP], moved: Transitions, log_alpha: Array, key: Array) -> Any:
            action, log_density = sac.policy_of(config, light(policy), moved.z, key)
            worth = sac.lower(jnp.stack([value(critic, moved.z, action) for critic in critics]))
            regret = losses.masked_mean(jnp.exp(log_alpha) * log_density - worth, moved.mask)
            return regret, losses.masked_mean(-log_density, moved.mask)

        def critic_step(own: Learner, moved: Transitions, target: Array) -> Learner:
            gradient = jax.grad(critic_loss)(own.network, moved, target)
            return Learner(*descend(rate, gradient, own.moments, own.network))

        def policy_step(own: Learner, *rest: Any) -> tuple[Learner, Array]:
            gradient, entropy = jax.grad(policy_loss, has_aux=True)(own.network, *rest)
            return Learner(*descend(rate, gradient, own.moments, own.network)), entropy

        def target(reward: Array, ends: Array, worth: list[Array], log_density: Array, log_alpha: Array) -> Array:
            soft = sac.lower(jnp.stack(worth)) - jnp.exp(log_alpha) * log_density
            return reward + given(config.training.discount) * (1.0 - ends) * soft

        def alpha_step(log_alpha: Array, moments: Any, entropy: Array, wanted: float) -> Any:
            return descend(self._alpha_rate, jnp.exp(log_alpha) * (entropy - wanted), moments, log_alpha)

        def follow(slow: MLP, fast: MLP) -> MLP:
            return jax.tree.map(lambda a, b: a + config.sac.target_rate * (b - a), slow, fast)

        self._act = jit(lambda policy, z, key: sac.policy_of(config, light(policy), z, key))
        self._value, self._target, self._follow = jit(value), jit(target), jit(follow)
        self._critic_step, self._policy_step, self._alpha_step = jit(critic_step), jit(policy_step), jit(alpha_step)

    def learn(self, moved: Transitions, reward: Array, key: Array) -> None:
        """One gradient step on critics, policy and temperature; the targets follow every other one."""
        k_target, k_policy = jax.random.split(key)
        action, log_density = self._act(self.policy.network, moved.z_next, k_target)
        worth = [self._value(critic, moved.z_next, action) for critic in self.targets]
        target = self._target(reward, moved.terminated, worth, log_density, self.log_alpha)
        self.critics = [self._critic_step(critic, moved, target) for critic in self.critics]
        asked = [critic.network for critic in self.critics]
        self.policy, entropy = self._policy_step(self.policy, asked, moved, self.log_alpha, k_policy)
        wanted = -float(moved.action.shape[-1])
        self.log_alpha, self._alpha_moments = self._alpha_step(self.log_alpha, self._alpha_moments, entropy, wanted)
        self.updates += 1
        if self.updates % self._config.sac.target_every == 0:
            self.targets = [self._follow(slow, fast) for slow, fast in zip(self.targets, asked, strict=True)]

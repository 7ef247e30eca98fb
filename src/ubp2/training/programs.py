"""The compiled programs of a population: every device computation of the loop, each for one set of shapes.

The functions here are of one run; `make_programs` lifts them over members, so that arrays have a leading axis [S],
also where S is 1. What a member's configuration says in numbers is an argument (`member_axis`). Randomness has no
state: each program folds the decision (or another counter) into the run's key. A resumed run therefore draws what an
uninterrupted one would have drawn, and a seed draws the same whoever runs beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2 import replay as replay_
from ubp2.agents.base import Action, Agent, Metrics
from ubp2.config.schema import given
from ubp2.preference import buffer, candidates
from ubp2.preference.queries import STRATEGIES, Candidates, Chosen, make_strategy
from ubp2.training import ceiling
from ubp2.training.compilation import Program
from ubp2.training.member_axis import Layout, Settings
from ubp2.training.records import STREAMS, Acted, Evidence, Memory, Selection, memory
from ubp2.training.seeds import at, lift
from ubp2.types import Frame, Preferences, Segments

__all__ = ["Programs", "bound_to", "compiled", "make_programs", "roots"]

_FOLLOWING = ("optimizer", "target")  # in names of arrays that only follow parameters


class Programs(NamedTuple):
    """Compiled functions of trees [S, ...]; `step` is a counter that is folded into the key, `seed` an index into S."""

    init: Program  # () -> state, memory, carry [S, 1, ...]
    record: Program  # `seen` of the agent, memory, frame, last obs [S, D], ended [S], true_reward [S] -> seen, memory
    plan: Program  # state, carry [S, W, ...], obs [S, W, D], first [S, W], explore, stream, step -> Acted; W is 1
    react: Program
    pick: Program  # where [S], Acted, Acted -> Acted
    update: Program  # state, memory, step, repetition -> state, metrics, Evidence
    select: Program  # state, memory, members [S], how many of them, step -> Selection [S, ...] of these, in order
    judge: Program  # state, rows [S, K] -> predicted returns [S, 2, K] of the left and the right segments
    fit: Program  # state, memory, due [S], step -> state, metrics, finite [S]; for agents that learn at sessions
    remember: Program  # preferences, rows [S, K] -> preferences with the first `rows.count` [S] of them
    eval_plan: Program  # `plan` and `react` with the environments of the evaluation
    eval_react: Program
    predict_reward: Program  # state, obs [S, N, D], action [S, N, A] -> [S, N]; N decisions of an episode


def _init(layout: Layout, agent: Agent, root: Array, settings: Settings) -> tuple[Any, Memory, Array]:
    own = layout.agent_of(settings, agent)
    return own.init(jax.random.fold_in(root, 0)), memory(layout.config, *layout.sizes), own.carry()[None]


def _record(agent: Agent, seen: Any, memory: Memory, frame: Frame, last: Array, ended: Array, true_reward: Array):
    """Remember a decision and, where it ended the episode, the last observation in a slot with a zero action."""
    rewards = memory.true_rewards
    if rewards is not None:
        rewards = ceiling.add(rewards, memory.replay.total % rewards.reward.shape[0], true_reward)
    closing = Frame(last, jnp.zeros_like(frame.action), jnp.zeros_like(frame.terminated), frame.episode, frame.step + 1)
    frames = jax.tree.map(lambda *parts: jnp.stack(parts), frame, closing)
    replay = replay_.extend(memory.replay, frames, 1 + ended.astype(jnp.int32))
    seen = agent.observe(seen, frame.obs)
    seen = jax.tree.map(partial(jnp.where, ended), agent.observe(seen, last), seen)
    return seen, Memory(replay, memory.preferences, rewards)


def _act(
    layout: Layout,
    agent: Agent,
    controller: str,
    root: Array,
    settings: Settings,
    state: Any,
    carry: Array,
    obs: Array,
    first: Array,
    explore: Array,
    *step: Array,
) -> Acted:
    """A decision of each of W environments; `first` [W] says where an episode starts, and with it the carry."""
    agent = layout.agent_of(settings, agent)
    act: Callable[..., Action] = getattr(agent, controller)
    keys = jax.random.split(_fold(root, *step), obs.shape[0])

    def one(carry: Array, obs: Array, first: Array, key: Array) -> Acted:
        action = act(state, jnp.where(first, agent.carry(), carry), obs, explore, key)
        decided = [action.action, jnp.stack(action.scores), action.broken.astype(jnp.float32)[None]]
        return Acted(action.carry, jnp.concatenate(decided))

    return jax.vmap(one)(carry, obs, first, keys)


def _fold(key: Array, *counters: Array) -> Array:
    for counter in counters:
        key = jax.random.fold_in(key, counter)
    return key


def _update(
    layout: Layout,
    agent: Agent,
    root: Array,
    settings: Settings,
    state: Any,
    memory: Memory,
    step: Array,
    repetition: Array,
) -> tuple[Any, Metrics, Evidence]:
    config, agent = layout.config_of(settings), layout.agent_of(settings, agent)
    key = _fold(root, jnp.int32(STREAMS["update"]), step, repetition)
    k_batch, k_pairs, k_update = jax.random.split(key, 3)
    training = config.training
    batch = replay_.sample(memory.replay, k_batch, training.batch_size, given(training.horizon))
    if agent.others:
        others, slots = replay_.observations(memory.replay, jax.random.fold_in(k_batch, 1), agent.others)
        batch = batch._replace(others=others, others_index=slots)
    if memory.true_rewards is not None:
        supervision = ceiling.targets(memory.true_rewards, batch)
    else:
        # Agents with a fit take all labels there, and do not bootstrap.
        members = config.model.reward_members if config.preferences.bootstrap and agent.fit is None else None
        # The largest minibatch of any member; of it, a member's own share counts.
        supervision = buffer.sample(memory.preferences, k_pairs, layout.config.preferences.batch_size, members)
        counted = jnp.arange(supervision.label.shape[0]) < settings.pairs
        supervision = supervision._replace(weight=jnp.where(counted, supervision.weight, 0.0))
    state, metrics = agent.update(state, batch, supervision, k_update)
    return state, metrics, Evidence(_finite(state, metrics), batch, supervision)


def _finite(state: Any, metrics: Metrics) -> Array:
    """Whether the parameters and what was measured are finite.

    What is not in a gradient is not in the parameters that it moved either, so that moments and targets, which are most
    of the state, need not be read at every update; `state.save` looks at them before each checkpoint.
    """
    named = jax.tree_util.tree_leaves_with_path(state)
    moved = [leaf for path, leaf in named if not any(part in jax.tree_util.keystr(path) for part in _FOLLOWING)]
    leaves = [leaf for leaf in (*moved, *metrics.values()) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()


def _fit(
    layout: Layout,
    agent: Agent,
    root: Array,
    settings: Settings,
    state: Any,
    memory: Memory,
    due: Array,
    step: Array,
) -> tuple[Any, Metrics, Array]:
    """Fit the agent at a session, and say whether it is finite; a member that had no session stays as it is."""
    agent = layout.agent_of(settings, agent)
    assert agent.fit is not None
    key = _fold(root, jnp.int32(STREAMS["fit"]), step)
    learned, metrics = agent.fit(state, memory.replay, memory.preferences, key)
    return jax.tree.map(partial(jnp.where, due), learned, state), metrics, _finite(learned, metrics)


def _select(
    layout: Layout, agent: Agent, root: Array, settings: Settings, state: Any, memory: Memory, step: Array
) -> Selection:
    """Draw candidate pairs, let the members judge them, keep the K that the strategy (Algorithm 2, say) chooses.

    K is that of the member who asks most; of fewer, the first count.
    """
    preferences, agent = layout.config_of(settings).preferences, layout.agent_of(settings, agent)
    # Looked up only here: a run is evaluated where a strategy of one's own is not known.
    strategies = [make_strategy(name) for name in layout.strategies]
    shared = layout.config.preferences
    k_segments, k_strategy = jax.random.split(_fold(root, jnp.int32(STREAMS["select"]), step))
    segments, places, again = candidates.draw(preferences, memory.replay, k_segments)
    returns = agent.segment_returns(state, segments)  # [E, 2N]
    returns = returns.reshape(returns.shape[0], -1, 2)
    seen = Candidates(returns, *candidates.describe(segments, memory.preferences), again)

    def choose() -> Chosen:
        asked = [partial(strategy, k_strategy, seen, shared.per_session) for strategy in strategies]
        return asked[0]() if len(asked) == 1 else jax.lax.switch(settings.strategy, asked)

    if agent.fit is None:
        index, flip, score = choose()
    else:  # a reward that has not been fitted yet has nothing to say
        at_random = partial(STRATEGIES["uniform"], k_strategy, seen, shared.per_session)
        index, flip, score = jax.lax.cond(memory.preferences.count == 0, at_random, choose)
    first, second = 2 * index + flip, 2 * index + 1 - flip
    return Selection(
        jax.tree.map(lambda x: x[first], segments), jax.tree.map(lambda x: x[second], segments), score, places
    )


def _judge(layout: Layout, agent: Agent, settings: Settings, state: Any, rows: Preferences) -> Array:
    """Returns that the reward model predicts for the two segments of each row: [2, K]."""
    agent = layout.agent_of(settings, agent)
    nowhere = jnp.zeros(rows.label.shape, jnp.int32)
    sides = (Segments(obs, action, nowhere, nowhere) for obs, action in (rows[:2], rows[2:4]))
    return jnp.stack([jnp.mean(agent.segment_returns(state, side), axis=0) for side in sides])


def _predict_reward(layout: Layout, agent: Agent, settings: Settings, state: Any, obs: Array, action: Array) -> Array:
    return layout.agent_of(settings, agent).predict_reward(state, obs, action)


def make_programs(layout: Layout, agent: Agent) -> Programs:
    """The functions above for the members of a layout; nothing is compiled yet.

    agent: as it is made from the configuration of the first member, which has the same functions as every other's.
    """
    count, bound = layout.size, bound_to(layout)
    settings = bound[1]

    def lifted(function: Callable[..., Any], *axes: int | None, keyed: bool = True, donate: tuple[int, ...] = ()):
        first = (0, 0) if keyed else (0,)
        own = lift(partial(function, layout, agent), count, (*first, *axes))
        return Program(own, bound=bound if keyed else (settings,), donate=donate)

    def acting(controller: str) -> Program:
        return lifted(lambda layout, agent, *rest: _act(layout, agent, controller, *rest), 0, 0, 0, 0, None, None, None)

    def select(
        roots: Array, settings: Settings, state: Any, memory: Memory, members: Array, due: Array, step: Array
    ) -> Selection:
        """One after the other, so that only those that are due cost time."""

        def one(i: Array) -> Selection:
            return _select(layout, agent, *at((roots, settings, state, memory), members[i], count), step)

        if count == 1:
            return jax.tree.map(lambda x: x[None], one(jnp.int32(0)))
        shapes = jax.eval_shape(one, jnp.int32(0))
        empty = jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), shapes)

        def put(i: Array, found: Selection) -> Selection:
            return jax.tree.map(lambda all_, own: all_.at[i].set(own), found, one(i))

        return jax.lax.fori_loop(0, due, put, empty)

    def deciding() -> tuple[Program, Program]:
        """The planner and the policy; of an agent without a planner they are one."""
        plan = acting("plan")
        return plan, acting("react") if agent.plans else plan

    plan, react = deciding()
    # With one environment the evaluation has the shapes of training.
    eval_plan, eval_react = (plan, react) if layout.config.evaluation.workers == 1 else deciding()
    return Programs(
        init=lifted(_init),
        record=Program(lift(partial(_record, agent), count, (0,) * 6), donate=(0, 1)),
        plan=plan,
        react=react,
        pick=Program(lift(lambda where, a, b: jax.tree.map(partial(jnp.where, where), a, b), count, (0, 0, 0))),
        update=lifted(_update, 0, 0, None, None, donate=(0,)),
        select=Program(select, bound=bound),
        judge=lifted(_judge, 0, 0, keyed=False),
        fit=lifted(_fit, 0, 0, 0, None, donate=(0,)),
        remember=Program(lift(buffer.extend, count, (0, 0)), donate=(0,)),
        eval_plan=eval_plan,
        eval_react=eval_react,
        predict_reward=lifted(_predict_reward, 0, 0, 0, keyed=False),
    )


def bound_to(layout: Layout) -> tuple[Array, Settings]:
    """The arguments in which programs of one structure differ: random keys and settings, [S] each."""
    return roots([member.seed for member in layout.members]), layout.settings()


def roots(seeds: Sequence[int]) -> Array:
    """The random keys of runs with these seeds: the only thing in which their programs differ."""
    return jnp.stack([jax.random.key(np.uint32(seed & 0xFFFFFFFF)) for seed in seeds])


def compiled(programs: Programs) -> int:
    """How many compilations the programs have cost so far; constant once every shape was seen."""
    return sum(program.compilations for program in set(programs))

"""Both sides of the paper's inequalities for one system, one state of knowledge and one policy.

Names follow the paper: a tilde there is a rollout in the mean model, `imagined` here; without one it is `real`. The
proof's coefficients are wide, and most right sides lie above what holds without any lemma; a companion "with the true
error" goes through the same proof with |mu - p*| in place of its bound beta sigma, and can fail.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array
from scipy.special import erf

from ubp2.theory.bounds import return_coefficient
from ubp2.theory.gp import GP
from ubp2.theory.grid import Transitions, evaluate, evaluate_forever
from ubp2.theory.learner import Beliefs, Coefficients, Knowledge, coefficients, optimistic
from ubp2.theory.systems import System

__all__ = [
    "Case",
    "Check",
    "Sums",
    "calibrated",
    "case_of",
    "drift",
    "optimistic_value_forever",
    "potential",
    "q_error",
    "returns",
    "single_episode",
    "single_episode_forever",
    "sums",
    "sums_forever",
]


class Check(NamedTuple):
    """Both sides of an inequality, and a bound of the left one that needs no lemma (infinite where there is none)."""

    left: float
    right: float
    trivial: float


class Case(NamedTuple):
    """A system, what is known of it, and how wrong the mean model is."""

    system: System
    beliefs: Beliefs
    own: Coefficients  # of the proof, for the horizon
    forever: Coefficients  # of the proof, without end
    width: float  # beta of the dynamics
    reward_error: Array  # [S, A], |mu^r - r|
    apart: Array  # [S, A], total variation between the laws of the next state in the model and in truth


class Sums(NamedTuple):
    """Discounted sums under a policy from the start: of r, mu^r, sigma^r and |sigma^d|."""

    reward: float
    mean_reward: float
    reward_std: float
    dynamics_std: float


def case_of(system: System, knowledge: Knowledge) -> Case:
    """Two Gaussians of deviation s whose means lie D apart differ by erf(D / (2 sqrt(2) s)); rounding adds nothing."""
    beliefs = knowledge.beliefs()
    mean = knowledge.dynamics.posterior()[0].reshape(system.change.shape)
    distance = np.linalg.norm(mean - system.change, axis=-1)
    return Case(
        system,
        beliefs,
        coefficients(knowledge),
        coefficients(knowledge, forever=True),
        knowledge.betas()[0],
        np.abs(beliefs.reward - system.reward),
        erf(distance / (2 * math.sqrt(2) * system.noise.scale)),
    )


def calibrated(system: System, knowledge: Knowledge) -> bool:
    """Whether the intervals of dynamics and reward hold at all pairs: what every lemma assumes."""
    wide, wide_reward = knowledge.betas()
    mean, std = knowledge.dynamics.posterior()
    off = np.abs(mean - system.change.reshape(mean.shape)) - wide * std[:, None]
    worth, worth_std = knowledge.reward.posterior()
    off_reward = np.abs(worth[:, 0] - system.reward.ravel()) - wide_reward * worth_std
    return bool(max(off.max(), off_reward.max()) <= 1e-9)


def sums(system: System, beliefs: Beliefs, policy: Array, tail: Array | None = None) -> tuple[Sums, Sums]:
    """Imagined and real sums under actions [H, S], and then under the stationary actions `tail` [S] without end."""
    signals = _signals(system, beliefs)

    def rolled(law: Transitions) -> Sums:
        last = None if tail is None else evaluate_forever(law, tail, signals, system.gamma)
        return Sums(*evaluate(law, policy, signals, system.gamma, last)[system.start])

    return rolled(beliefs.law), rolled(system.law)


def sums_forever(system: System, beliefs: Beliefs, policy: Array) -> tuple[Array, Array]:
    """Imagined and real sums [S, 4] without end under stationary actions [S], from every state."""
    signals = _signals(system, beliefs)
    imagined, real = (evaluate_forever(law, policy, signals, system.gamma) for law in (beliefs.law, system.law))
    return imagined, real


def _signals(system: System, beliefs: Beliefs) -> Array:
    return np.stack([system.reward, beliefs.reward, beliefs.reward_std, beliefs.dynamics_std], axis=-1)


def drift(case: Case, signal: Array, policy: Array, rolled: Transitions, valued: Transitions) -> float:
    """What sums of a signal [S, A] change by at most from one law to the other, with the true error of the model.

    Sum of gamma^(t+1) span(V_t+1) TV(s_t, a_t), for states that follow the law `rolled` and V under the law `valued`.
    """
    gamma = case.system.gamma
    value = cost = np.zeros((len(signal), 1))
    for actions in policy[::-1]:
        step = gamma * np.ptp(value) * case.apart
        cost = evaluate(rolled, actions[None], step[..., None], gamma, cost)
        value = evaluate(valued, actions[None], signal[..., None], gamma, value)
    return float(cost[case.system.start, 0])


def _steps(system: System, *, forever: bool = False) -> float:
    """Discounted number of steps."""
    return 1 / (1 - system.gamma) if forever else float(np.sum(system.gamma ** np.arange(system.horizon)))


def returns(case: Case, policy: Array) -> dict[str, Check]:
    """Lemma D.3: |eta(pi, p*) - eta(pi, mu)| <= lambda Sigma^d, with sums in the mean model and in truth."""
    system, law = case.system, case.beliefs.law
    imagined, real = sums(system, case.beliefs, policy)
    off, trivial = abs(real.reward - imagined.reward), _steps(system) * system.span
    bounds = {
        "D.3: returns differ by at most lambda Sigma~^d": case.own.dynamics * imagined.dynamics_std,
        "D.3: returns differ by at most lambda Sigma^d": case.own.dynamics * real.dynamics_std,
        "D.3, true error, sums in the model": drift(case, system.reward, policy, law, system.law),
        "D.3, true error, sums in truth": drift(case, system.reward, policy, system.law, law),
    }
    return {name: Check(off, bound, trivial) for name, bound in bounds.items()}


def q_error(case: Case, policy: Array) -> dict[str, Check]:
    """Lemma D.8: |Q bar - Q| under stationary actions [S], and its bound, at the state where the two are closest.

    The Lipschitz constant times the distance of the means is replaced by what it bounds under Gaussian noise, the
    span of the value times the distance in total variation.
    """
    system, gamma = case.system, case.system.gamma
    imagined, real = sums_forever(system, case.beliefs, policy)
    error = np.abs(imagined[:, 1] - real[:, 0])
    signal = case.reward_error + gamma * np.ptp(real[:, 0]) * case.apart
    bounds = {
        "D.8: error of Q": case.forever.reward * imagined[:, 2] + case.forever.dynamics * imagined[:, 3],
        "D.8, true error": evaluate_forever(case.beliefs.law, policy, signal[..., None], gamma)[:, 0],
    }
    both = np.stack([system.reward, case.beliefs.reward])
    trivial = _steps(system, forever=True) * float(np.ptp(both))
    closest = {name: int((bound - error).argmin()) for name, bound in bounds.items()}
    return {name: Check(float(error[i]), float(bounds[name][i]), trivial) for name, i in closest.items()}


def _slope(case: Case, signal: Array, *, forever: bool = False) -> float:
    """Lambda for a signal in place of the reward: it is proportional to the span of what is summed."""
    system = case.system
    horizon = None if forever else system.horizon
    return return_coefficient(case.width, float(np.ptp(signal)), system.noise.scale, system.gamma, horizon)


def single_episode(case: Case, policy: Array, best: float) -> dict[str, Check]:
    """Lemma D.6 for the policy that maximises the optimistic objective, as printed and corrected.

    The optimistic objective sums mu^r, not r: going from one to the other costs a tilde Sigma^r once more. And tilde
    Sigma^r - Sigma^r comes from rolling out the same deviations under other dynamics: it is bounded by lambda times
    Sigma^d, where lambda has the span of sigma^r in place of that of the reward. Together
    r_n <= 2 a Sigma^r + (2 a lambda_r + b lambda_d + b + lambda) Sigma^d.
    """
    system, beliefs, (a, b, _) = case.system, case.beliefs, case.own
    lambda_r, lambda_d = _slope(case, beliefs.reward_std), _slope(case, beliefs.dynamics_std)
    imagined, (reward, _, reward_std, dynamics_std) = sums(system, beliefs, policy)
    printed = (b * b + 2 * b) * dynamics_std + (a * a + a) * reward_std
    corrected = 2 * a * reward_std + (2 * a * lambda_r + b * lambda_d + 2 * b) * dynamics_std
    regret, spilled = best - reward, imagined.reward_std - reward_std
    trivial = _steps(system) * system.span, _steps(system) * float(np.ptp(beliefs.reward_std))
    true_error = drift(case, beliefs.reward_std, policy, system.law, beliefs.law)
    return {
        "D.6, as printed": Check(regret, printed, trivial[0]),
        "D.6, corrected": Check(regret, corrected, trivial[0]),
        "D.6, step as printed: Sigma~^r - Sigma^r <= a Sigma^r": Check(spilled, a * reward_std, trivial[1]),
        "D.6, step corrected: <= lambda_r Sigma^d": Check(spilled, lambda_r * dynamics_std, trivial[1]),
        "D.6, step, true error": Check(spilled, true_error, trivial[1]),
    }


def optimistic_value_forever(case: Case, own: Coefficients, policy: Array, tail: Array, error: float = 0.0) -> float:
    """eta^UCB of definition 5.5: actions [H, S], then the estimated value of `tail` [S] and its bonus.

    The estimate of the value is `error` too low, or too high if that is negative (assumption 5.3); its uncertainty is
    the sum of the others (assumption 5.4 with alpha_r = alpha_d = 1).
    """
    system, beliefs = case.system, case.beliefs
    end = optimistic(beliefs, own.value, own.value)[..., None]
    last = evaluate_forever(beliefs.law, tail, end, system.gamma) - error
    step = optimistic(beliefs, own.reward, own.dynamics)[..., None]
    return float(evaluate(beliefs.law, policy, step, system.gamma, last)[system.start, 0])


def single_episode_forever(
    case: Case, policy: Array, tail: Array, best: float, error: float, promised: float
) -> dict[str, Check]:
    """Lemmas D.9 and D.15 with coefficients that the proof gives, and its steps.

    With a = beta^r, b = lambda and c >= max(a, b), `promised` the largest optimistic value, and `lost` of it by this
    policy (0 in D.9):
    r <= UCB + lost + gamma^H eps - eta(pi, p*)                                             (optimism; the best plan)
      <= [Sigma~ mu^r - Sigma~ r] + [eta(pi, mu) - eta(pi, p*)] + (a of H steps + c of the rest) Sigma~^r
         + (b of H steps + c of the rest) Sigma~^d + lost + 2 gamma^H eps
      <= (a + c) Sigma~^r + lambda Sigma^d + c Sigma~^d + lost + 2 gamma^H eps
      <= (a + c) Sigma^r + (lambda + (a + c) lambda_r + c (1 + lambda_d)) Sigma^d + lost + 2 gamma^H eps,
    the last by lemma D.3 for sigma^r and |sigma^d| in place of the reward.
    """
    system, beliefs, (a, b, c) = case.system, case.beliefs, case.forever
    imagined, real = sums(system, beliefs, policy, tail)
    lambda_r, lambda_d = (_slope(case, own, forever=True) for own in (beliefs.reward_std, beliefs.dynamics_std))
    value = optimistic_value_forever(case, case.forever, policy, tail, error)
    lost, granted = promised - value, system.gamma**system.horizon * abs(error)
    regret, steps = best - real.reward, _steps(system, forever=True)
    trivial = steps * system.span
    paid = (a + c) * imagined.reward_std + c * imagined.dynamics_std + b * real.dynamics_std
    weight = b + (a + c) * lambda_r + c * (1 + lambda_d)
    bound = (a + c) * real.reward_std + weight * real.dynamics_std
    spilled_r, spilled_d = imagined.reward_std - real.reward_std, imagined.dynamics_std - real.dynamics_std
    span_r, span_d = (steps * float(np.ptp(own)) for own in (beliefs.reward_std, beliefs.dynamics_std))
    sides = {
        "D.9, corrected": (regret, bound + lost + 2 * granted, trivial),
        "D.9, step: r <= UCB + gamma^H eps - eta": (regret, promised + granted - real.reward, trivial),
        "D.9, step: UCB - gamma^H eps - eta <= bonuses": (value - granted - real.reward, paid, math.inf),
        "D.9, step: Sigma~ mu^r - Sigma~ r <= a Sigma~^r": (
            imagined.mean_reward - imagined.reward,
            a * imagined.reward_std,
            steps * float(case.reward_error.max()),
        ),
        "D.9, step: eta(mu) - eta <= lambda Sigma^d": (imagined.reward - real.reward, b * real.dynamics_std, trivial),
        "D.9, step: Sigma~^r - Sigma^r <= lambda_r Sigma^d": (spilled_r, lambda_r * real.dynamics_std, span_r),
        "D.9, step: Sigma~^d - Sigma^d <= lambda_d Sigma^d": (spilled_d, lambda_d * real.dynamics_std, span_d),
    }
    return {name: Check(*own) for name, own in sides.items()}


def potential(gp: GP, deviations: Array) -> Check:
    """Lemma 17 of Curi et al.: what sums of squared deviations [N, H] at the inputs of N episodes are bounded by.

    The model is fixed within an episode. What an episode tells is log det(I + C / s^2) / 2 for the posterior covariance
    C of its inputs, and 1 + max_t sigma_t^2 / s^2 <= det(I + C / s^2); a maximum is at least a mean, and
    x <= k / log(1 + k / s^2) log(1 + x / s^2) for 0 <= x <= k. So the sum is at most 2 H k / log(1 + k / s^2) times the
    gain of all inputs.
    """
    largest, steps = float(gp.kernel.diagonal(gp.watched).max()), deviations.shape[1]
    bound = 2 * steps * largest / math.log1p(largest / gp.variance) * gp.gain()
    return Check(float(np.sum(deviations**2)), bound, deviations.size * largest)

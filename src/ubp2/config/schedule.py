"""When sessions of questions are, by the configuration alone, and how many labels a run can ask for."""

from __future__ import annotations

from ubp2.config.schema import PreferenceConfig

__all__ = ["first_session", "labels_that_fit", "sessions_due"]


def first_session(preferences: PreferenceConfig) -> int:
    """The decision before which the schedule has no session."""
    return preferences.every if preferences.first is None else preferences.first


def sessions_due(preferences: PreferenceConfig, decision: int) -> int:
    """Sessions that the schedule has up to this decision."""
    first = first_session(preferences)
    return 0 if decision < first else 1 + (decision - first) // preferences.every


def labels_that_fit(preferences: PreferenceConfig, steps: int, episode_decisions: int) -> int:
    """Labels that the schedule can ask within `steps` decisions: sessions stand at ends of episodes, one at most."""
    episodes = steps // episode_decisions
    first = first_session(preferences)
    possible = episodes - max(-(-first // episode_decisions), 1) + 1  # ends of episodes from the first session on
    return max(min(sessions_due(preferences, episodes * episode_decisions), possible), 0) * preferences.per_session

"""Property tests draw the same examples every time, and never fail for being slow: machines are shared."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ubp2",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=50,
    database=None,
)
settings.load_profile("ubp2")

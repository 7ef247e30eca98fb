"""Act with an exported policy where there is NumPy and nothing else: no jax, no ubp2, no simulator.

ubp2 export RUN --out robot/policy.npz       # writes robot/numpy_policy.py beside it
python examples/use_exported_policy.py robot/policy.npz
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np


def main(path: Path) -> np.ndarray:
    """Load the policy, say what it is, and decide for some observations."""
    sys.path.insert(0, str(path.parent))  # where numpy_policy.py lies
    from numpy_policy import load_policy

    policy = load_policy(path)
    about = policy.metadata
    print(f"{about['env']}: {about['obs_dim']} numbers in, {about['action_dim']} out")
    print(f"learned by {about['agent']} in {about['decisions']} decisions from {about['labels']} labels")

    observations = np.random.default_rng(0).normal(size=(1000, about["obs_dim"]))  # yours come from sensors
    began = time.perf_counter()
    actions = np.stack([policy.act(obs) for obs in observations])
    print(f"a decision takes {time.perf_counter() - began:.3f} ms")  # of a thousand
    assert np.allclose(actions, policy.act_many(observations), atol=1e-5)  # many at once are faster
    return actions


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "policy.npz"))

"""What `ubp2 export` and `ubp2 push` answer. Mistakes that can be seen without jax are told before it is imported."""

from __future__ import annotations

from typing import Any

from ubp2 import population
from ubp2.runs import Run
from ubp2.sharing import options
from ubp2.system import prepare_jax

__all__ = ["export"]


def export(args: options.Export) -> tuple[dict[str, Any], str]:
    """Write the policy of a run into a file."""
    Run.open(population.members(args.run)[0])
    prepare_jax()
    from ubp2.sharing.export import export as write

    path = write(args.run, args.out, args.format)
    data: dict[str, Any] = {"run": args.run, "out": path, "bytes": path.stat().st_size}
    lines = [f"policy: {path} ({data['bytes'] / 1e6:.2f} MB)"]
    if path.suffix == options.ENDINGS["numpy"]:
        data["loader"] = path.with_name("numpy_policy.py")
        lines.append(f"loader: {data['loader']}, which needs NumPy alone:")
        lines += ["  from numpy_policy import load_policy", f'  action = load_policy("{path.name}").act(obs)']
    else:
        lines.append("input: obs [N, D]; output: action [N, A], within the bounds of the environment")
    return data, "\n".join(lines)

"""What `ubp2 export` and `ubp2 push` answer. Mistakes that can be seen without jax are told before it is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ubp2.sharing import options, uploading
from ubp2.storage import population
from ubp2.storage.runs import Run
from ubp2.system import prepare_jax

__all__ = ["export", "push"]


def export(args: options.Export) -> tuple[dict[str, Any], str]:
    """Write the policy of a run into a file."""
    steps = Run.open(population.members(args.run)[0]).config.steps
    options.target(args.out, args.format)
    prepare_jax()
    from ubp2.sharing.export import written

    path, policy = written(args.run, args.out, args.format)
    done = policy.metadata["decisions"]
    data: dict[str, Any] = {"run": args.run, "out": path, "bytes": path.stat().st_size, "decisions": done}
    lines = [f"policy: {path} ({data['bytes'] / 1e3:.1f} kB)"]
    if done < steps:
        lines.append(f"note: the run is not finished; this is its policy after {done} of {steps} decisions")
    if path.suffix == options.ENDINGS["numpy"]:
        data["loader"] = path.with_name("numpy_policy.py")
        lines.append(f"loader: {data['loader']}, which needs NumPy alone:")
        lines += ["  from numpy_policy import load_policy", f'  action = load_policy("{path.name}").act(obs)']
    else:
        lines.append("input: obs [N, D]; output: action [N, A], within the bounds of the environment")
    return data, "\n".join(lines)


def push(args: options.Push) -> tuple[dict[str, Any], str]:
    """Put a run together for the Hub, and upload it."""
    Run.open(population.members(args.run)[0])
    uploading.check_repo(args.repo)
    api = None if args.dry_run else uploading.hub()  # what is missing is told before the work
    prepare_jax()
    from ubp2.sharing.push import assemble

    out = args.out or Path("hub") / args.repo.rpartition("/")[2]
    folder = assemble(args.run, args.repo, out, with_labels=args.with_labels)
    sizes = {name: (folder.path / name).stat().st_size for name in folder.files}
    data: dict[str, Any] = {"run": args.run, "repo": args.repo, "folder": folder.path, "files": sizes}
    lines = [*folder.notes, *(f"  {size / 1e3:9.1f} kB  {folder.path / name}" for name, size in sizes.items())]
    if api is None:
        return data, "\n".join([*lines, f"would be uploaded to {args.repo}; nothing was: --dry-run"])
    data["url"] = uploading.upload(api, args.repo, folder, private=args.private)
    return data, "\n".join([*lines, f"uploaded to: {data['url']}"])

"""All checks, side by side, and the page of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from ubp2.doctor import machine, packages
from ubp2.doctor.finding import Finding
from ubp2.doctor.options import Doctor
from ubp2.doctor.trial import Failed, attempt, end
from ubp2.envs.gl import choose_backend
from ubp2.errors import UserError
from ubp2.system import versions
from ubp2.terminal.colour import paint

__all__ = ["answer", "devices", "rendering"]

# What gives MuJoCo each way to draw without a screen.
BACKENDS = {"osmesa": "libosmesa6", "egl": "libegl1 libopengl0"}
COLOURS = {"ok": "green", "note": "blue", "warning": "yellow", "problem": "red"}
MOST_PATIENCE = 24 * 3600
SIDE_BY_SIDE = 3  # trials import much: more at a time would wait for each other


def answer(args: Doctor) -> tuple[dict[str, Any], str, int]:
    """Data, text and exit code: 1 where something that every run needs is broken."""
    if not 0 < args.patience <= MOST_PATIENCE:
        raise UserError(f"--patience must lie above 0 and be at most {MOST_PATIENCE} seconds, got {args.patience:g}")
    findings = examine(args)
    counts = Counter(finding.state for finding in findings)
    data = {"findings": [finding._asdict() for finding in findings], "problems": counts["problem"]}
    return data, text(findings, counts), int(counts["problem"] > 0)


def examine(args: Doctor) -> list[Finding]:
    """The findings in the order of the page, whichever is there first."""
    checks: Sequence[Callable[[], Finding | list[Finding]]] = (
        packages.python,
        packages.required,
        partial(devices, args.patience),
        partial(worker, args.patience),
        partial(rendering, args.patience),
        machine.ffmpeg,
        partial(machine.disk, "runs", args.out),
        machine.cache,
        machine.memory,
        machine.cores,
        machine.shared_memory,
        partial(machine.port, args.port),
        packages.extras,
    )
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        try:
            found = [pool.submit(check) for check in checks]
            results = [future.result() for future in found]
        except BaseException:  # Ctrl-C above all, because a check hangs: nobody waits for any of them
            pool.shutdown(wait=False, cancel_futures=True)
            end()
            raise
    return [finding for result in results for finding in ([result] if isinstance(result, Finding) else result)]


def devices(patience: float) -> list[Finding]:
    """What jax computes on; a GPU that the driver knows and jax does not use."""
    cards = _cards()
    try:
        seen = attempt("devices", patience)
    except Failed as failure:
        have = versions()
        named = " ".join(f"{name}=={have[name]}" for name in ("jax", "jaxlib") if name in have) or "jax"
        advice = f"on a GPU look whether its memory is taken; else: pip install --force-reinstall --no-deps {named}"
        return [Finding("jax", "problem", f"cannot compute: {failure}", advice)]
    found = [Finding("jax", "ok", f"computes on {', '.join(seen['devices'])}")]
    if cards and seen["backend"] == "cpu":
        text = f"the driver sees {', '.join(cards)}, jax does not"
        advice = "pip install 'ubp2[cuda]'"
        if os.environ.get("JAX_PLATFORMS"):
            advice = f"unset JAX_PLATFORMS, which is {os.environ['JAX_PLATFORMS']}; else: {advice}"
        found.append(Finding("gpu", "warning", text, advice))
    elif not cards and seen["backend"] == "cpu":
        found.append(Finding("gpu", "note", "none, which --preset cpu and toy/reach do not miss"))
    return found


def _cards() -> list[str]:
    """Names of the GPUs that NVIDIA's driver sees."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def worker(patience: float) -> Finding:
    """An environment in a process of its own."""
    try:
        attempt("work", patience)
    except Failed as failure:
        advice = "if you cannot mend it, --environment.in-process trains without worker processes"
        return Finding("environment worker", "problem", str(failure), advice)
    return Finding("environment worker", "ok", "toy/reach steps in a process of its own")


def rendering(patience: float) -> list[Finding]:
    """Each way to draw without a screen, tried. One that fails matters where no other works or it was asked for."""
    asked = os.environ.get("MUJOCO_GL")
    if not sys.platform.startswith("linux"):
        return [_drawn(asked or "this system's own", None, patience, {})[0]]
    with ThreadPoolExecutor(len(BACKENDS)) as pool:
        tried = list(pool.map(lambda name: _drawn(name, BACKENDS[name], patience, {"MUJOCO_GL": name}), BACKENDS))
    findings, works = [finding for finding, _ in tried], [good for _, good in tried]
    choose_backend()
    chosen = os.environ["MUJOCO_GL"]
    if asked is None:
        del os.environ["MUJOCO_GL"]
    if not any(works):
        return findings
    best = list(BACKENDS)[works.index(True)]
    outcomes = zip(BACKENDS, findings, works, strict=True)
    kept = [finding if good or name == chosen else _unneeded(finding) for name, finding, good in outcomes]
    if chosen not in BACKENDS or not works[list(BACKENDS).index(chosen)]:
        advice = f"export MUJOCO_GL={best}"
        kept.append(Finding("rendering", "warning", f"MUJOCO_GL is {chosen}, and nothing will be drawn", advice))
    return kept


def _drawn(name: str, library: str | None, patience: float, variables: dict[str, str]) -> tuple[Finding, bool]:
    check = f"rendering with {name}"
    try:
        attempt("render", patience, **variables)
    except Failed as failure:
        advice = "clips of MuJoCo environments need it" + (f": apt-get install {library}" if library else "")
        return Finding(check, "warning", f"cannot draw: {failure}", advice), False
    return Finding(check, "ok", "draws"), True


def _unneeded(finding: Finding) -> Finding:
    return finding._replace(state="note", advice="not needed: another way works")


def text(findings: Sequence[Finding], counts: Counter[str]) -> str:
    """One line a finding, under it what to do, and at last how many are bad."""
    lines = []
    for finding in findings:
        word = paint(f"{finding.state:8}", COLOURS[finding.state], sys.stdout)
        lines.append(f"{word} {finding.check}: {finding.text}")
        if finding.advice:
            lines.append(f"{'':8} -> {finding.advice}")
    last = ", ".join(f"{counts[state]} {state}{'s' * (counts[state] != 1)}" for state in ("problem", "warning"))
    return "\n".join([*lines, "", last])

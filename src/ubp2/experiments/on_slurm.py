"""A plan as an array job of SLURM: a script, a task of the array for each program.

Before SLURM ends a job it sends SIGUSR1 (`--signal`), or SIGTERM when it is preempted. The run writes a checkpoint and
leaves with 75, and the script puts its task back into the queue, where it goes on from that checkpoint. A run that
fails is not put back: it was tried again already, and `ubp2 sweep resume` starts it anew.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ubp2.experiments import programs
from ubp2.experiments.plans import How, Plan
from ubp2.experiments.resources import largest
from ubp2.experiments.running import STOP
from ubp2.signals import CHECKPOINTED

__all__ = ["FOLDER", "emulate", "submit", "write"]

FOLDER = "slurm"
NOTICE = 120  # seconds between the signal and the end; a run needs less than 30 to leave (docs/sweeps.md)

_JOB = "1"  # number of the array job that is emulated

_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array={array}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={cpus}
{gpus}#SBATCH --signal=B:USR1@{notice}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={log}

# Written by ubp2 sweep. Add what your cluster asks for (partition, account, time), here or as options of sbatch.
cd {cwd}
{python} -m ubp2 sweep cell {out} --number "$SLURM_ARRAY_TASK_ID" &
cell=$!
trap 'kill -USR1 "$cell" 2>/dev/null' USR1 TERM
wait "$cell"
code=$?
while kill -0 "$cell" 2>/dev/null; do  # a signal ended the waiting, not the run
  wait "$cell"
  code=$?
done
case "$code" in
  {again}|138|143)  # a checkpoint is there; or the signal came before there was anything to save
    [ -e {out}/{stop} ] || scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" ;;
esac
exit "$code"
"""


def write(made: Plan, how: How) -> Path:
    """Write the script for the programs that are missing; all tasks of an array get what the largest needs."""
    folder = made.out.absolute() / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    programs.write(made.programs)  # its tasks train those, wherever they start
    numbers = [str(program.number) for program in made.missing]
    needs = largest([made.needs(program) for program in made.missing])
    script = folder / "array.sh"
    script.write_text(
        _SCRIPT.format(
            name=made.experiment.name,
            array=",".join(numbers) + (f"%{how.jobs}" if how.jobs else ""),
            cpus=needs.cpus,
            gpus="#SBATCH --gpus=1\n" if needs.gpus else "",
            notice=NOTICE,
            log=shlex.quote(f"{folder}/%A_%a.log"),
            cwd=shlex.quote(os.getcwd()),
            python=shlex.quote(sys.executable),
            out=shlex.quote(str(made.out.absolute())),
            again=CHECKPOINTED,
            stop=STOP,
        ),
        encoding="utf-8",
    )
    return script


def submit(script: Path) -> str:
    """What submits it."""
    return f"sbatch {shlex.quote(str(script))}"


def emulate(script: Path, tasks: Sequence[int], jobs: int, seconds: float, say: Callable[[str], None]) -> list[int]:
    """Run the script here as SLURM would, preempt its tasks, and run again what it puts back; the last code of each.

    The n-th attempt at a task is preempted at a random moment within `seconds` times 2^n, so that all of them end.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "requeued"
        asked.touch()
        stand_in = Path(folder) / "scontrol"
        stand_in.write_text(f'#!/bin/bash\necho "$@" >> {shlex.quote(str(asked))}\n', encoding="utf-8")
        stand_in.chmod(0o755)

        def work(task: int) -> int:
            for attempt in itertools.count():
                before = _requeued(asked, task)
                code = _preempted(script, task, folder, random.uniform(1, 1 + seconds * 2**attempt))
                again = _requeued(asked, task) > before
                say(f"task {task} ended with code {code}" + (" and was put back" if again else ""))
                if not again:
                    return code
            raise AssertionError("unreachable")

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(work, tasks))


def _requeued(asked: Path, task: int) -> int:
    """How often a task was put back."""
    return asked.read_text(encoding="utf-8").splitlines().count(f"requeue {_JOB}_{task}")


def _preempted(script: Path, task: int, folder: str, seconds: float) -> int:
    """One attempt at one task, with its signal if it has not ended by then; its words go where SLURM would put them."""
    environment = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}",
        "SLURM_ARRAY_JOB_ID": _JOB,
        "SLURM_ARRAY_TASK_ID": str(task),
    }
    with (script.parent / f"{_JOB}_{task}.log").open("ab") as log:
        child = subprocess.Popen(["bash", str(script)], stdout=log, stderr=log, env=environment, start_new_session=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(seconds)
        child.send_signal(signal.SIGUSR1)
        return child.wait()

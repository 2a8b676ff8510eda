"""Slurm's sbatch, srun, sacct and scancel, for one machine without Slurm: jobs are processes, at most two at once.

As a script it is the command that its first word names. `install` puts commands of these names into a folder for PATH. The
folder in SLURM_DOUBLE holds a file with the state of each job, and its script.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

AT_ONCE = 2


def install(folder: Path) -> dict[str, str]:
    """The environment with which a sweep finds these commands and not a real Slurm."""
    (folder / "bin").mkdir()
    (folder / "jobs").mkdir()
    for name in ("sbatch", "srun", "sacct", "scancel", "scontrol"):
        file = folder / "bin" / name
        file.write_text(f'#!/bin/sh\nexec {sys.executable} -P {Path(__file__).resolve()} {name} "$@"\n')
        file.chmod(0o755)
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "SLURM_DOUBLE": str(folder / "jobs")}


def jobs() -> Path:
    return Path(os.environ["SLURM_DOUBLE"])


def state(job: str, new: str | None = None) -> str:
    file = jobs() / f"{job}.state"
    if new is not None:
        file.with_suffix(".new").write_text(new)
        file.with_suffix(".new").replace(file)
    return file.read_text()


def sbatch(script: str) -> None:
    text = Path(script).read_text()
    unknown = [
        line for line in text.splitlines() if line.startswith("#SBATCH") and not re.match(r"#SBATCH --[a-z-]+=\S", line)
    ]
    assert not unknown, unknown
    number = len(list(jobs().glob("*.sh"))) + 1
    (jobs() / f"{number}.sh").write_text(text)
    array = re.search(r"^#SBATCH --array=0-(\d+)%(\d+)$", text, re.MULTILINE)
    tasks = [f"{number}_{task}" for task in range(int(array[1]) + 1)] if array else [str(number)]
    for task in tasks:
        state(task, "PENDING")
    print(f"Submitted batch job {number}", flush=True)
    if os.fork() == 0:  # what Slurm's controller does
        os.setsid()
        for stream in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        work(number, tasks, min(AT_ONCE, int(array[2])) if array else 1)


def work(number: int, tasks: list[str], width: int) -> None:
    running: dict[str, subprocess.Popen] = {}
    waiting = list(tasks)
    while waiting or running:
        for task, process in list(running.items()):
            if process.poll() is not None:
                del running[task]
                if state(task).startswith("RUNNING"):
                    state(task, "FAILED" if process.returncode else "COMPLETED")
        while waiting and len(running) < width:
            task = waiting.pop(0)
            if state(task) != "PENDING":
                continue
            index = {"SLURM_ARRAY_JOB_ID": str(number), "SLURM_ARRAY_TASK_ID": task.split("_")[1]} if "_" in task else {}
            environment = os.environ | {"SLURM_JOB_ID": str(number), "SLURM_PROCID": "0", "SLURM_NTASKS": "1"} | index
            script = ["bash", str(jobs() / f"{number}.sh")]
            running[task] = subprocess.Popen(script, env=environment, start_new_session=True)
            state(task, f"RUNNING {running[task].pid}")
        time.sleep(0.05)


def srun(*words: str) -> None:
    task = os.environ.get("SLURM_ARRAY_TASK_ID", "")
    names = {"%A": os.environ["SLURM_JOB_ID"], "%a": task, "%t": "0", "%j": os.environ["SLURM_JOB_ID"]}
    options, command = list(words), []
    while options:
        word = options.pop(0)
        if word in ("--output", "--error"):
            file = options.pop(0)
            for sign, name in names.items():
                file = file.replace(sign, name)
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1 if word == "--output" else 2)
        elif not word.startswith("--"):
            command = [word, *options]
            break
    os.execvp(command[0], command)


def sacct(*_: str) -> None:
    print("JobID|State|NodeList")
    for file in sorted(jobs().glob("*.state")):
        print(f"{file.stem}|{file.read_text().split()[0]}|here")
        print(f"{file.stem}.batch|{file.read_text().split()[0]}|here")


def scancel(*numbers: str) -> None:
    for number in numbers:
        before = state(number)
        if before.startswith(("PENDING", "RUNNING")):
            state(number, "CANCELLED")
        if before.startswith("RUNNING"):
            os.killpg(int(before.split()[1]), signal.SIGTERM)


if __name__ == "__main__":
    {"sbatch": sbatch, "srun": srun, "sacct": sacct, "scancel": scancel}[sys.argv[1]](*sys.argv[2:])

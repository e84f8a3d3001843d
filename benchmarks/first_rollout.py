"""What the first rollout costs after the wheel's installation: a new folder, and no compiler on PATH.

The wheel is built and unpacked into a folder of its own, with its modules compiled as pip does; the packages
it needs are those of this interpreter. CPU is of the whole command with all that it starts, and of a second
run there; a further rollout is the difference between runs of many and of one. The files are in the
cache of the system. What a rollout leaves is counted in its own folder, folders themselves not.

    python benchmarks/first_rollout.py
    python benchmarks/first_rollout.py --rounds 10 --rollouts 101
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from task_trials import make_task

PROJECT = Path(__file__).parents[1]
COMPILERS = ("cc", "gcc", "clang", "tcc", "c99", "zig")
START = "import sys; from proctor.cli.main import main; sys.exit(main(sys.argv[1:]))"


def install_wheel(folder: Path) -> Path:
    """The wheel's content, as an installer leaves it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
        for each in archive.infolist():
            if each.external_attr >> 16 & 0o111:
                (folder / "site" / each.filename).chmod(0o755)
    compileall.compile_dir(folder / "site", quiet=1)
    return folder / "site"


def path_without_compilers(folder: Path) -> str:
    """A PATH with every program of this one but compilers."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.iterdir() if place.is_dir() else ():
            if program.name not in COMPILERS and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    assert not any(shutil.which(each, path=str(folder)) for each in COMPILERS)
    return str(folder)


def cpu_s(task: Path, project: Path, rollouts: int, env: dict[str, str]) -> float:
    """User and system time of `proctor run` and of everything below it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = ["run", "-t", str(task), "-a", "oracle", "--host-root", "--rollouts", str(rollouts)]
    done = subprocess.run(
        [sys.executable, "-c", START, *words],
        cwd=project,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def left_behind(project: Path) -> tuple[float, float]:
    """Files, and kB allocated for them, per rollout of every run in the project."""
    folders = list(project.glob("data/rollouts/*/*/trials/*/*"))
    sizes = [each.stat().st_blocks / 2 for folder in folders for each in folder.rglob("*") if each.is_file()]
    return len(sizes) / len(folders), sum(sizes) / len(folders)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rollouts", type=int, default=51)
    options = parser.parse_args()
    found: dict[str, list[float]] = {"first": [], "second": [], "further": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {
            "PYTHONPATH": str(install_wheel(folder)),
            "PATH": path_without_compilers(folder / "bin"),
            "HOME": str(folder),
        }
        task = make_task(folder / "task")
        for number in range(-1, options.rounds):
            project = folder / f"project{number}"
            project.mkdir()
            first, second = (cpu_s(task, project, 1, env) for _ in range(2))
            if number < 0:
                continue  # it has read every file for the others
            many = cpu_s(task, project, options.rollouts, env)
            found["first"].append(first)
            found["second"].append(second)
            found["further"].append((many - second) / (options.rollouts - 1))
        files, allocated_kb = left_behind(project)
    print(f"load {os.getloadavg()[0]:.1f}, {options.rounds} rounds; CPU, median and least")
    for label, key, unit, scale in (
        ("first rollout in a new folder", "first", "s", 1),
        ("second run there", "second", "s", 1),
        ("each further rollout", "further", "ms", 1e3),
    ):
        values = [value * scale for value in found[key]]
        print(f"{label:<30} {statistics.median(values):6.2f} {min(values):6.2f} {unit}")
    print(f"{'a rollout leaves':<30} {files:6.1f} files, {allocated_kb:.1f} kB allocated")


if __name__ == "__main__":
    main()

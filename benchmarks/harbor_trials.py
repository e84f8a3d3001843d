"""Run one task through Harbor's own trial loop, and print JSON.

    harbor_trials.py TASK ROLLOUTS spawn|bwrap|overlay|podman [trials|job]

Runs in an interpreter that has Harbor (3.12 or later); `task_trials.py` calls it. `spawn` is the barest
environment Harbor accepts: commands are processes of this machine in a folder, so what is measured is the
loop around them. `bwrap` starts each command in a bubblewrap of its own, over this machine's /usr, with
nothing to write to but the folders of a trial. `overlay` gives it a root that can be written to, as tasks
expect. `trials` runs one trial after the other and nothing around them; `job` is what `harbor run` does:
trials of one job, two at a time, with its records.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.job import Job
from harbor.models.environment_type import EnvironmentType
from harbor.models.job.config import JobConfig
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.trial.trial import Trial


class Spawn(BaseEnvironment):  # the methods are Harbor's
    """No isolation at all: paths inside are folders below a scratch folder."""

    @staticmethod
    def type() -> EnvironmentType:
        return EnvironmentType.DOCKER

    @property
    def is_mounted(self) -> bool:
        return False

    @property
    def supports_gpus(self) -> bool:
        return False

    @property
    def can_disable_internet(self) -> bool:
        return True

    def _validate_definition(self) -> None:
        return None

    async def start(self, force_build: bool) -> None:  # noqa: ARG002 - Harbor's signature
        self.root = Path(tempfile.mkdtemp(prefix="harbor-spawn-"))
        (self.root / "app").mkdir()

    async def stop(self, delete: bool) -> None:  # noqa: ARG002 - Harbor's signature
        shutil.rmtree(self.root, ignore_errors=True)

    def inside(self, path: str) -> Path:
        return self.root / str(path).lstrip("/")

    async def upload_file(self, source_path: Any, target_path: str) -> None:
        self.inside(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source_path, self.inside(target_path))

    async def upload_dir(self, source_dir: Any, target_dir: str) -> None:
        shutil.copytree(source_dir, self.inside(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Any) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.inside(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Any) -> None:
        self.inside(source_dir).mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.inside(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(self, command: str, **options: Any) -> ExecResult:  # noqa: ARG002 - Harbor's signature
        for name in ("/app", "/logs", "/tests", "/solution"):
            command = command.replace(name, str(self.root) + name)
        script = f"mkdir -p {self.root}/logs/agent {self.root}/logs/verifier; cd {self.root}/app; {command}"
        for file in (*self.root.glob("tests/*.sh"), *self.root.glob("solution/*.sh")):
            text = file.read_text()
            if str(self.root) not in text:
                for name in ("/app", "/logs"):
                    text = text.replace(name, str(self.root) + name)
                file.write_text(text)
        return await self.run("/bin/sh", "-c", script)

    async def run(self, *argv: str) -> ExecResult:
        process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = await process.communicate()
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0)


class Bwrap(Spawn):
    """Each command in a fresh bubblewrap; nothing is set up twice, nothing is limited."""

    FOLDERS = ("app", "logs/agent", "logs/verifier", "tests", "solution")

    async def start(self, force_build: bool) -> None:
        await super().start(force_build)
        for name in self.FOLDERS:
            (self.root / name).mkdir(parents=True, exist_ok=True)

    async def exec(self, command: str, **options: Any) -> ExecResult:  # noqa: ARG002 - Harbor's signature
        binds = [part for name in ("app", "logs", "tests", "solution")
                 for part in ("--bind", f"{self.root}/{name}", f"/{name}")]  # fmt: skip
        return await self.run(
            *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr"),
            *("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
            *("--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
            *(*binds, "--chdir", "/app", "/bin/sh", "-c", command),
        )


class Overlay(Bwrap):
    """The same over an overlay on disk. Debian's bubblewrap mounts none: a process holds it."""

    SYSTEM = ("ld.so.cache", "nsswitch.conf", "passwd", "group")
    below: tempfile.TemporaryDirectory[str] | None = None

    async def start(self, force_build: bool) -> None:
        await super().start(force_build)
        if Overlay.below is None:
            Overlay.below = self.lay_out()
        self.state = Path(tempfile.mkdtemp(prefix="harbor-overlay-"))
        for name in ("work", "merged"):
            (self.state / name).mkdir()
        layers = f"userxattr,lowerdir={Overlay.below.name},upperdir={self.root},workdir={self.state}/work"
        self.holder = await asyncio.create_subprocess_exec(
            *("unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c"),
            f"mount -t overlay overlay -o {layers} {self.state}/merged && echo ready && exec cat",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if await self.holder.stdout.readline() != b"ready\n":
            raise RuntimeError("cannot mount the overlay")

    async def stop(self, delete: bool) -> None:
        self.holder.stdin.close()
        await self.holder.wait()
        await super().stop(delete)
        shutil.rmtree(self.state, ignore_errors=True)

    def lay_out(self) -> tempfile.TemporaryDirectory[str]:
        """The layer below, made once: a few files of this machine, and where things are mounted."""
        below = tempfile.TemporaryDirectory(prefix="harbor-lower-")
        lower = Path(below.name)
        for name in ("usr", "proc", "dev", "tmp", "etc", "root", "var"):
            (lower / name).mkdir()
        for name in self.SYSTEM:
            shutil.copy2(Path("/etc", name), lower / "etc" / name)
        for name in ("bin", "lib", "lib64"):
            (lower / name).symlink_to(f"usr/{name}")
        return below

    async def exec(self, command: str, **options: Any) -> ExecResult:  # noqa: ARG002 - Harbor's signature
        return await self.run(
            *("nsenter", "--user", "--mount", "--preserve-credentials", "-t", str(self.holder.pid)),
            *("bwrap", "--unshare-all", "--die-with-parent", "--new-session"),
            *("--bind", f"{self.state}/merged", "/", "--ro-bind", "/usr", "/usr", "--proc", "/proc"),
            *("--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/app", "/bin/sh", "-c", command),
        )


OWN = {"spawn": "Spawn", "bwrap": "Bwrap", "overlay": "Overlay"}


def cpu_s() -> float:
    return sum(
        getattr(resource.getrusage(who), name)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        for name in ("ru_utime", "ru_stime")
    )


async def one_after_another(task: Path, rollouts: int, environment: EnvironmentConfig, folder: Path) -> None:
    for _ in range(rollouts):
        config = TrialConfig(
            task=TaskConfig(path=task),
            trials_dir=folder,
            agent=AgentConfig(name="oracle"),
            environment=environment,
        )
        trial = await Trial.create(config)
        check(await trial.run())


async def as_a_job(task: Path, rollouts: int, environment: EnvironmentConfig, folder: Path) -> None:
    config = JobConfig(
        job_name=f"job-{rollouts}",
        jobs_dir=folder,
        n_attempts=rollouts,
        n_concurrent_trials=2,
        quiet=True,
        environment=environment,
        agents=[AgentConfig(name="oracle")],
        tasks=[TaskConfig(path=task)],
    )
    job = await Job.create(config)
    # What it shows of its progress would be among what this prints.
    with contextlib.redirect_stdout(sys.stderr):
        for result in (await job.run()).trial_results:
            check(result)


def check(result: TrialResult) -> None:
    if result.exception_info:
        raise RuntimeError(str(result.exception_info))
    if result.verifier_result is None or result.verifier_result.rewards != {"reward": 1}:
        raise RuntimeError(f"not solved: {result.verifier_result}")


async def main(task: Path, rollouts: int, kind: str, how: str = "trials") -> None:
    own = OWN.get(kind)
    environment = (
        EnvironmentConfig(import_path=f"harbor_trials:{own}") if own else EnvironmentConfig(type=kind)
    )
    run = {"trials": one_after_another, "job": as_a_job}[how]
    with tempfile.TemporaryDirectory() as folder:
        await run(task, 1, environment, Path(folder))
        before, began = cpu_s(), time.perf_counter()
        await run(task, rollouts, environment, Path(folder))
        cpu, wall = cpu_s() - before, time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {
                "all_ms": cpu / rollouts * 1e3,
                "trials_per_s": rollouts / wall,
                "memory_mb": memory,
                "version": importlib.metadata.version("harbor"),
            }
        )
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))

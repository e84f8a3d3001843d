"""The empty home and project in which a picture is taken, and the commands that run there."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[2]
WORLD = Path(
    "/tmp/proctor-picture"
)  # always the same: paths are in what commands print, and decide where lines break
PROGRAMS = Path(sys.executable).parent
SAMPLES = ("specs", "tasks", "experiments.d")


def environment() -> dict[str, str]:
    """What every command sees: nothing of the person who takes the picture."""
    home = WORLD / "user"
    return {
        "PATH": f"{PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "TMPDIR": str(WORLD / "tmp"),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": "80",
        "PYTHONHASHSEED": "0",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }


def make() -> None:
    """The project with the samples and the picture's own specs. It must not be there already."""
    try:
        WORLD.mkdir()
    except FileExistsError:
        sys.exit(
            f"{WORLD} exists: another picture is being taken, or one was killed. Remove it and try again."
        )
    for name in SAMPLES:
        shutil.copytree(TREE / name, WORLD / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(Path(__file__).parent / "project", WORLD / "project")
    for name in ("user", "tmp"):
        (WORLD / name).mkdir()


def save(folder: Path) -> None:
    """Copy the world as it is now."""
    shutil.copytree(WORLD, folder, symlinks=True)


def load(folder: Path) -> None:
    """Make the world what was saved."""
    remove()
    shutil.copytree(folder, WORLD, symlinks=True)


def remove() -> None:
    """Remove the world."""
    shutil.rmtree(WORLD, ignore_errors=True)


@dataclass
class Answer:
    """What a command printed, and how it ended."""

    command: str
    exit: int
    stdout: str
    stderr: str

    def text(self) -> str:
        """For a person."""
        return (
            f"$ {self.command}\nexit code {self.exit}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"
        )


@dataclass
class Camera:
    """Runs commands in the world, and writes what they answer below `folder`."""

    folder: Path
    cpu_s: dict[str, float] = field(default_factory=dict)
    columns: int = 80

    def write(self, name: str, content: str | bytes) -> None:
        """Keep a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def write_json(self, name: str, document: Any) -> None:
        """Keep a JSON document."""
        self.write(name, json.dumps(document, indent=1, ensure_ascii=False) + "\n")

    def run(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> Answer:
        """Run `proctor` with these arguments to its end."""
        words = [str(word) for word in arguments]
        variables = {**environment(), "COLUMNS": str(self.columns), **(env or {})}
        done = subprocess.run(
            [PROGRAMS / "proctor", *words], cwd=WORLD, env=variables, check=False,
            capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=300,
        )  # fmt: skip
        return Answer(" ".join(["proctor", *words]), done.returncode, done.stdout, done.stderr)

    def plain(self, name: str, *arguments: str | Path, env: Mapping[str, str] | None = None) -> None:
        """Keep what a command prints for people, and the CPU time that it took."""
        before = _children_cpu_s()
        answer = self.run(*arguments, env=env)
        self.cpu_s[name] = round(_children_cpu_s() - before, 4)
        self.write(f"{name}.txt", answer.text())

    def json(self, name: str, *arguments: str | Path, env: Mapping[str, str] | None = None) -> None:
        """Keep what a command prints for programs."""
        answer = self.run(*arguments, "--json", env=env)
        document = {"command": answer.command, "exit": answer.exit, "stderr": answer.stderr}
        self.write_json(f"{name}.json", document | {"stdout": parsed(answer.stdout)})

    def both(self, name: str, *arguments: str | Path, env: Mapping[str, str] | None = None) -> None:
        """For people and for programs: the command runs twice."""
        self.plain(name, *arguments, env=env)
        self.json(name, *arguments, env=env)


def parsed(text: str) -> Any:
    """JSON, lines of JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines()]
    except ValueError:
        return text


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def background(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """A command that serves: the address that it prints. It is ended with the context."""
    output = WORLD / "tmp" / f"served-{time.monotonic_ns()}.txt"
    with output.open("w") as stdout:
        process = subprocess.Popen(
            [PROGRAMS / "proctor", *map(str, arguments)], cwd=WORLD, stdout=stdout, stderr=subprocess.STDOUT,
            env={**environment(), **(env or {})},
        )  # fmt: skip
    try:
        yield _address(process, output)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        output.unlink()


def _address(process: subprocess.Popen[bytes], output: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for word in output.read_text().split():
            if word.startswith("http://"):
                return word.rstrip("/.,")
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise SystemExit(f"{process.args!r} did not start:\n{output.read_text()}")


def load_average() -> tuple[float, ...]:
    """How busy the machine is, to judge the figures by."""
    return os.getloadavg()

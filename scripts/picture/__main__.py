"""A picture of what Proctor answers and writes, to hold a later state of the code against it.

    python scripts/picture take BEFORE
    python scripts/picture take AFTER --like BEFORE
    python scripts/picture compare BEFORE AFTER

The second take executes everything anew, and reads what the first one executed: so what is read must be equal
to the last digit, and only what is measured anew is compared without its numbers.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import differences
import executing
import reading
import service
import world
from world import TREE, Camera


def main() -> int:
    """Take or compare."""
    parser = argparse.ArgumentParser(prog="scripts/picture", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    taking = commands.add_parser("take", help="write a picture of this tree to FOLDER")
    taking.add_argument("folder", type=Path)
    taking.add_argument("--like", type=Path, metavar="BEFORE", help="read the results that BEFORE executed")
    comparing = commands.add_parser("compare", help="print what differs; exit code 1 if anything does")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "compare":
        return differences.compare(given.before, given.after)
    take(given.folder.resolve(), given.like and given.like.resolve())
    return 0


def take(folder: Path, like: Path | None) -> None:
    """The whole picture: about four minutes of CPU time."""
    if folder.exists():
        sys.exit(f"{folder} exists already")
    if like and not (like / "picture.json").is_file():
        sys.exit(f"{like} is no picture")
    world.make()
    camera = Camera(folder)
    facts = {
        "id": uuid.uuid4().hex,
        "commit": commit(),
        "started_at": time.time(),
        "load": world.load_average(),
    }
    try:
        executing.execute(camera)
        camera.write("runs.json", camera.run("ls", "--json", "--limit", "1000").stdout)
        world.save(folder / "world")
        if like:
            world.load(like / "world")
        facts |= {"reads": like.name if like else folder.name, "read_at": time.time()}
        facts["world"] = differences.facts(like)["world"] if like else facts["id"]
        reading.read(camera)
        service.photograph(camera)
        static(camera)
        demo(camera)
    finally:
        world.remove()
    camera.write_json("figures.json", {"cpu_s": camera.cpu_s, "start_up_cpu_s": start_up(camera)})
    camera.write_json("picture.json", facts | {"ended_at": time.time()})


def commit() -> str:
    """What the picture is of."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=TREE, capture_output=True, text=True, check=False
    )
    return described.stdout.strip()


def static(camera: Camera) -> None:
    """Help of every command, the generated pages and the schemas."""
    helps(camera, ())
    check = subprocess.run(
        [sys.executable, TREE / "scripts/reference.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    camera.write("static/reference-check.txt", f"exit code {check.returncode}\n{check.stdout}{check.stderr}")
    for page in sorted((TREE / "docs/reference").glob("*.*")):
        camera.write(f"static/reference/{page.name}", page.read_bytes())
    for schema in sorted((TREE / "src").rglob("schemas/*.json")):
        camera.write(f"static/schemas/{schema.name}", schema.read_bytes())


def helps(camera: Camera, words: tuple[str, ...]) -> None:
    """The help of a command, and of those below it."""
    answer = camera.run(*words, "--help")
    camera.write(f"static/help/{'-'.join(('proctor', *words))}.txt", answer.text())
    if len(words) < 2 and "[ARGS]" in answer.stdout:
        listed = answer.stdout.partition("Options:")[2]
        for name in re.findall(r"^  ([a-z][a-z-]+)(?:  |$)", listed, re.MULTILINE):
            helps(camera, (*words, name))


def demo(camera: Camera) -> None:
    """The script of `make demo`, which writes to demo/ of the tree."""
    env = {**world.environment(), "HOME": str(Path.home())}
    done = subprocess.run(
        [TREE / "scripts/demo.sh"],
        cwd=TREE,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    shutil.rmtree(TREE / "demo", ignore_errors=True)
    camera.write(
        "measured/demo.txt", world.Answer("demo.sh", done.returncode, done.stdout, done.stderr).text()
    )


def start_up(camera: Camera) -> dict[str, float]:
    """The least of seven: what a start costs when nothing disturbs it."""
    world.make()
    try:
        figures = {}
        for name, arguments in {"--version": ["--version"], "--help": ["--help"], "ls": ["ls"]}.items():
            times = []
            for _ in range(7):
                camera.plain("figures/start-up", *arguments)
                times.append(camera.cpu_s.pop("figures/start-up"))
            figures[name] = min(times)
    finally:
        world.remove()
        shutil.rmtree(camera.folder / "figures")
    return figures


if __name__ == "__main__":
    sys.exit(main())

"""What a pull costs beside `podman pull`: the same image from the same registry on loopback, in turns.

CPU time is that of each command with everything it waits for. The image is made of this machine's own files,
in four layers. Afterwards a second image on the same base is pulled, and the bytes that it took are counted.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from scratch import scratch

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.sandbox.image.registry.servers import PACK, Pusher, registry

TARGET = 1.5
_LAYERS = 4


def files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(place) / name for name in sorted(names))


def layers(total_bytes: int) -> Iterator[bytes]:
    """Tars of about the same size, of files as they come."""
    found = files(Path("/usr"))
    for number in range(_LAYERS):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as out:
            for each in found:
                if each.is_file() and not each.is_symlink():
                    out.add(each, f"{number}{each}", recursive=False)
                if buffer.tell() > total_bytes / _LAYERS:
                    break
        yield buffer.getvalue()


def measured(command: list[str], **more: object) -> tuple[float, float, str]:
    """CPU and wall seconds of a command, and what it printed."""
    began, before = time.monotonic(), os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    after = os.times()
    if done.returncode:
        sys.exit(f"{command}: {done.stderr}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu_s, time.monotonic() - began, done.stdout


def by_proctor(home: Path, names: list[str]) -> tuple[float, float, str]:
    command = [sys.executable, "-m", "proctor.cli.main", "images", "pull", *names, "--json"]
    return measured(command, env={**os.environ, "PROCTOR_HOME": str(home / ".proctor")})


def by_podman(home: Path, name: str) -> tuple[float, float, str]:
    storage = ["--root", str(home / "root"), "--runroot", str(home / "run"), "--storage-driver", "overlay"]
    return measured(["podman", *storage, "pull", "--quiet", "--tls-verify=false", name])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=300, help="size of the image, unpacked")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", choices=sorted(PACK), default="gzip", help="how layers are compressed")
    args = parser.parse_args()
    made = list(layers(args.megabytes * 1_000_000))
    small = next(layers(1000))
    pack = cache(PACK[args.kind][0])
    with tempfile.TemporaryDirectory() as folder, registry(Path(folder)) as host:
        pusher = Pusher(host=host)
        pusher.image("bench", "1", made, kind=args.kind, pack=pack)
        pusher.image("bench", "2", [*made, small], kind=args.kind, pack=pack)
        packed = sum(len(pack(each)) for each in made)
        print(f"{sum(map(len, made)) / 1e6:.0f} MB in {_LAYERS} layers, {packed / 1e6:.0f} MB as {args.kind}")
        ours, theirs, second = [], [], 0
        for number in range(args.rounds):
            with scratch() as home:
                cpu, wall, _ = by_proctor(home, [f"{host}/bench:1"])
                ours.append(cpu)
                (row,) = json.loads(by_proctor(home, [f"{host}/bench:1"])[2])
                second = row["downloaded_bytes"]
                other = json.loads(by_proctor(home, [f"{host}/bench:2"])[2])[0]["downloaded_bytes"]
            print(f"round {number + 1}: proctor {cpu:.2f} s CPU, {wall:.2f} s", end="")
            if shutil.which("podman"):
                with tempfile.TemporaryDirectory() as name:
                    cpu, wall, _ = by_podman(Path(name), f"{host}/bench:1")
                theirs.append(cpu)
                print(f"; podman {cpu:.2f} s CPU, {wall:.2f} s", end="")
            print(flush=True)
    print(f"proctor: {statistics.median(ours):.2f} s CPU; pulled again: {second} bytes; ", end="")
    print(f"a second image on the same base: {other} bytes, all of its own layer")
    if not theirs:
        print("podman is not here: nothing to compare with")
        return 0
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(f"podman: {statistics.median(theirs):.2f} s CPU; {ratio:.2f} times (target {TARGET})")
    return int(ratio > TARGET)


if __name__ == "__main__":
    sys.exit(main())

"""Look for a key that nobody may see: in files of any kind, in processes, and inside sandboxes."""

from __future__ import annotations

import base64
import gzip
import inspect
import io
import os
import re
import shlex
import threading
import urllib.parse
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from proctor.processes import descendants

LOOK = """
import base64, os, sys, urllib.parse
key = sys.argv[1][::-1]
SHAPES
known, found, seen = shapes(key), [], 0
files = ["/proc/%s/%s" % (each, name) for each in os.listdir("/proc") if each.isdigit()
         for name in ("environ", "cmdline")]
for top in sys.argv[2:]:
    files += [os.path.join(place, each) for place, _, names in os.walk(top) for each in names]
for file in files:
    try:
        if file.startswith("/proc/") or os.path.isfile(file):
            data = open(file, "rb").read(1 << 20)
            seen += 1
            found += [file for shape in known if shape in data][:1]
    except OSError:
        pass
print("looked at", seen)
for file in found:
    print("leaked:" + file)
"""
"""For Python inside a sandbox; its argument is the key backwards, so that it does not find itself."""


def shapes(key: str) -> set[bytes]:
    """A key in every encoding that a program may have put it into, also as a part of something longer."""
    plain = key.encode()
    found = {plain, key.encode("utf-16-le"), urllib.parse.quote(key, safe="").encode()}
    found |= {plain.hex().encode(), plain.hex().upper().encode()}
    for before in range(3):
        text = base64.b64encode(b"x" * before + plain)[4 if before else 0 : -4]
        found |= {text, text.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def looking(key: str, *tops: str) -> str:
    """A shell command that looks around inside, without a substitution, which some agents refuse."""
    places = tops or ("/app", "/root", "/run", "/tmp", "/var/tmp", "/logs", "/tests", "/dev/shm")
    code = base64.b64encode(LOOK.replace("SHAPES", inspect.getsource(shapes)).encode()).decode()
    return f"echo {code} | base64 -d | python3 - {shlex.join((key[::-1], *places))}"


def contents(file: Path) -> Iterator[bytes]:
    """The bytes of a file, and what is packed into it."""
    data = file.read_bytes()
    yield data
    if data[:4] == b"\x28\xb5\x2f\xfd":
        import zstandard

        yield zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data).read()
    elif data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    elif data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield from (archive.read(name) for name in archive.namelist())


def leaking_files(key: str, tops: Iterable[Path]) -> list[str]:
    """The files below these folders that have the key."""
    known = shapes(key)
    return [
        str(file)
        for top in tops
        for file in top.rglob("*")
        if file.is_file() and any(shape in data for data in contents(file) for shape in known)
    ]


@contextmanager
def watched_processes(key: str) -> Iterator[list[str]]:
    """What has the key while this lasts: command lines and environments of processes of this one."""
    known, found, over = shapes(key), [], threading.Event()

    def has(file: str) -> bool:
        try:
            data = Path(file).read_bytes()
        except OSError:
            return False
        return any(shape in data for shape in known)

    def look() -> None:
        while not over.wait(0.1):
            for each in descendants(os.getpid()):
                found.extend(
                    f"{name} of {each.pid}"
                    for name in ("cmdline", "environ")
                    if has(f"/proc/{each.pid}/{name}")
                )

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def told(text: str) -> tuple[int, list[str]]:
    """How often it was looked inside, by an output, and what was found there."""
    return len(re.findall(r"looked at \d+", text)), re.findall(r"leaked:/[\w./-]+", text)

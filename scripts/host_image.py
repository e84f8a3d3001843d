"""Make a small image of this machine's own programs, for tests and benchmarks where there is no registry.

Usage: host_image.py ENGINE. Prints the reference of the image; one that was made before is found again.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = """
awk base64 bash cat chmod chown chroot cp cut date dd df dirname du echo env false find grep head id kill ln
ls mkdir mkfifo mknod mktemp mount mv nohup nproc nsenter od pwd readlink rm rmdir sed seq setpriv setsid sh
sleep sort stat tail tar tee test timeout touch tr true truncate umount uname uniq unshare wc xargs yes
"""
PYTHON = "/usr/bin/python3"
LEFT_OUT = re.compile(
    r"/(__pycache__|test|tests|idlelib|lib2to3|ensurepip|distutils|config-[^/]*|dist-packages)/"
)
FOLDERS = (
    "app",
    "dev",
    "etc",
    "home",
    "opt",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr/local/bin",
    "var/tmp",
)
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
TEXTS = {
    "etc/passwd": "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:\ntester:x:1000:1000::/home:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\ntester:x:1000:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
SET_UID = "usr/local/bin/left-over"
"""A copy of `id` that runs as root whoever starts it, as a careless image may have."""


def main(engine: str) -> None:
    """Print the reference, after making the image if need be."""
    files = dict(wanted_files())
    seen = [f"{name} {path.stat().st_size} {path.stat().st_mtime_ns}" for name, path in sorted(files.items())]
    digest = hashlib.sha256("\n".join([*seen, repr((LINKS, TEXTS, FOLDERS))]).encode()).hexdigest()[:16]
    reference = f"localhost/proctor-host:{digest}"
    if subprocess.run([engine, "image", "inspect", reference], capture_output=True, check=False).returncode:
        with subprocess.Popen(
            [engine, "import", "-", reference], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as importing:
            assert importing.stdin is not None
            write(importing.stdin, files)
            importing.stdin.close()
        if importing.returncode:
            sys.exit(f"{engine} import ended with exit code {importing.returncode}")
    print(reference)


def wanted_files() -> Iterator[tuple[str, Path]]:
    """Path inside → file of the host."""
    binaries = [
        found
        for name in PROGRAMS.split()
        if (found := shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin"))
    ]
    if Path(PYTHON).exists():
        version = os.path.realpath(PYTHON).rpartition("/")[2]
        binaries.append(PYTHON)
        library = Path("/usr/lib") / version
        for path in sorted(library.rglob("*")):
            if path.is_file() and not LEFT_OUT.search(f"{path}"):
                yield str(path).lstrip("/"), path
                if path.suffix == ".so":
                    binaries.append(str(path))
    for path in dict.fromkeys([*binaries, *libraries(binaries)]):
        folder, _, name = path.rpartition("/")
        yield f"{os.path.realpath(folder).lstrip('/')}/{name}", Path(os.path.realpath(path))
    yield SET_UID, Path(os.path.realpath(shutil.which("id") or "/usr/bin/id"))


def libraries(binaries: list[str]) -> list[str]:
    """What the loader brings in for these."""
    said = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    return sorted(set(re.findall(r"(/\S+) \(0x", said)))


def write(stream: io.BufferedIOBase, files: dict[str, Path]) -> None:
    """Write the image as a tar."""
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for folder in FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder.endswith("tmp") else 0o755
            archive.addfile(entry)
        for name, target in LINKS.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
        for name, text in TEXTS.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
        for name, path in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = path.stat().st_size, path.stat().st_mode & 0o755
            if name == SET_UID:
                entry.mode = 0o4755
            with path.open("rb") as file:
                archive.addfile(entry, file)


if __name__ == "__main__":
    main(*sys.argv[1:])

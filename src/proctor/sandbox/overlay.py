"""What the root of a sandbox is stacked from: read-only layers, or the host's own system by allow-list."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from proctor.errors import SandboxError
from proctor.sandbox.base import Root
from proctor.sandbox.certificates import BUNDLE_PATH, CaBundle
from proctor.sandbox.lower import Lower
from proctor.sandbox.network_rules import RESOLVER

_HOST_ETC = (
    "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts",
    "gai.conf", "host.conf", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias",
    "localtime", "mime.types", "nsswitch.conf", "os-release", "profile", "protocols",
    "services", "shells", "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
_HOST_ETC_FOLDERS = ("alternatives", "pki/tls/certs", "ssl/certs")
"""Hundreds of links each: shown as they are, because copying them takes longer than all the rest."""
_FOLDERS = {
    "app": 0o755, "boot": 0o755, "dev": 0o755, "etc": 0o755, "home": 0o755, "logs": 0o755,
    "logs/agent": 0o777, "logs/artifacts": 0o777, "logs/verifier": 0o777, "media": 0o755, "mnt": 0o755,
    "opt": 0o755, "proc": 0o755, "root": 0o700, "run": 0o755, "srv": 0o755, "sys": 0o755, "tests": 0o755,
    "tmp": 0o1777, "usr": 0o755, "var": 0o755, "var/cache": 0o755, "var/lib": 0o755, "var/log": 0o755,
    "var/tmp": 0o1777,
}  # fmt: skip
_ACCOUNTS = """\
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
sys:x:3:3:sys:/dev:/usr/sbin/nologin
mail:x:8:8:mail:/var/mail:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
user:x:1000:1000:user:/home/user:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
_GROUP = (
    "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\ntty:x:5:\nmail:x:8:\nwww-data:x:33:\n"
    "user:x:1000:\nnogroup:x:65534:\n"
)
HOST_NAME = "sandbox"
SHM_BYTES = 64 << 20
STANDING = ("/logs/agent", "/logs/artifacts")
"""Made once, in the layer that all sandboxes share, instead of in each of them."""
_LOGS_MODE = 0o777
"""Whichever account an agent or the tests run as may write there."""
_OPAQUE = "user.overlay.opaque"
_MOST_LAYERS = 200
_OPEN_TREE = 428
_CLONE_TREE = 1 | os.O_CLOEXEC | 0x8000  # OPEN_TREE_CLONE, AT_RECURSIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The folders of one root: layers with the topmost first, and binds, read-only unless said otherwise."""

    layers: tuple[Path, ...]
    binds: tuple[tuple[Path, str], ...] = ()
    writable: frozenset[str] = frozenset()
    """Targets of binds that can be written."""
    standing: tuple[str, ...] = ()
    """Folders that are empty in it."""

    @property
    def lower(self) -> Lower:
        """The same, to be looked at."""
        return Lower(self.layers, self.binds)

    def check(self, name: str) -> None:
        """SandboxError when a part of it is no longer there."""
        for source in self.sources():
            if not source.exists():
                raise SandboxError(f"sandbox {name}: {source} does not exist; was the image cache cleared?")

    def sources(self) -> list[Path]:
        """Every folder or file of the host, in the order in which the keeper wants them."""
        return [*self.layers, *(source for source, _ in self.binds)]


def stack(root: Root, *, top: Path, host_layer: Path | None, name: str) -> Stack:
    """What to mount for a root, with the layers of `small_layer` on top and of `host_skeleton` below."""
    layers = [top, *(layer.absolute() for layer in reversed(root.layers))]
    given = {**root.binds, **root.writable}
    binds = [(source.absolute(), inside) for inside, source in sorted(given.items())]
    if root.host:
        assert host_layer is not None
        layers.append(host_layer)
        binds = [*_host_binds(), *binds]
    if len(layers) == 1:
        raise SandboxError(f"sandbox {name}: its root has no layers and is not the host's system")
    if len(layers) > _MOST_LAYERS:
        raise SandboxError(f"sandbox {name}: {len(layers)} layers; at most {_MOST_LAYERS} can be stacked")
    found = Stack(
        layers=tuple(layers), binds=tuple(binds), writable=frozenset(root.writable), standing=_standing(top)
    )
    found.check(name)
    return found


@cache
def _host_binds() -> tuple[tuple[Path, str], ...]:
    etc = (f"etc/{each}" for each in _HOST_ETC_FOLDERS)
    plain = (Path("/") / each for each in ("usr", "bin", "sbin", "lib", "lib32", "lib64", *etc))
    return tuple((folder, str(folder)) for folder in plain if folder.is_dir() and not folder.is_symlink())


Own = Callable[[Path], Awaitable[None]]
"""Gives a tree to the inside's root."""


async def host_skeleton(cache_dir: Path, own: Own) -> Path:
    """The lowest layer of a host root: empty folders and the few files of /etc that programs need."""
    signs = (each for name in _copied() for each in _signs(f"/etc/{name}"))
    known = [_FOLDERS, _ACCOUNTS, _GROUP, [target for _, target in _host_binds()], *signs]
    return await _layer(cache_dir, f"host-root-{_digest(known)}", _fill_skeleton, own)


async def top_layer(cache_dir: Path, own: Own, ca_bundle: CaBundle | None = None) -> Path:
    """What every sandbox has over its image: mount points, its own name, how it finds and trusts others.

    A layer shared by all costs a sandbox nothing; files written into each would.
    """
    texts = {"hostname": f"{HOST_NAME}\n", "hosts": f"127.0.0.1 localhost {HOST_NAME}\n::1 localhost\n"}
    texts["resolv.conf"] = f"nameserver {RESOLVER}\n"  # also without a network: it may get one later

    def fill(root: Path) -> None:
        for name in ("dev", "etc", "proc", "sys"):
            (root / name).mkdir(mode=0o755)
        for name, text in texts.items():
            (root / "etc" / name).write_text(text)
        if ca_bundle:
            (root / BUNDLE_PATH.lstrip("/")).write_bytes(ca_bundle.content)
            (root / BUNDLE_PATH.lstrip("/")).chmod(0o644)
        _make_standing(root)

    known = [texts, STANDING, _LOGS_MODE, *([ca_bundle.digest] if ca_bundle else [])]
    return await _layer(cache_dir, f"top-{_digest(known)}", fill, own)


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode(errors="surrogateescape")).hexdigest()[:16]


def _signs(place: str) -> Iterator[object]:
    """What tells whether a file, a link or anything in a folder has changed, without reading it."""
    try:
        status = os.lstat(place)
        yield place, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino
        if stat.S_ISLNK(status.st_mode):
            yield os.readlink(place)  # noqa: PTH115 - hundreds of them
        elif stat.S_ISDIR(status.st_mode):
            for name in sorted(os.listdir(place)):  # noqa: PTH208 - same
                yield from _signs(f"{place}/{name}")
    except OSError:
        return


def _make_standing(root: Path) -> None:
    """Empty folders that hide what an image has there; not on a disk that cannot say so."""
    try:
        for path in STANDING:
            folder = root / path.lstrip("/")
            folder.mkdir(parents=True)
            folder.chmod(_LOGS_MODE)
            os.setxattr(folder, _OPAQUE, b"y")
    except OSError:
        shutil.rmtree(root / "logs", ignore_errors=True)


def _standing(top: Path) -> tuple[str, ...]:
    """The folders that are empty in every sandbox with this layer on top."""
    return STANDING if (top / STANDING[0].lstrip("/")).is_dir() else ()


async def _layer(cache_dir: Path, name: str, fill: Callable[[Path], None], own: Own) -> Path:
    """Make a layer once; concurrent makers agree."""
    done = cache_dir / name
    if done.exists():
        return done
    cache_dir.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=cache_dir, prefix=f"{name}.building-"))
    try:
        fill(building)
        building.chmod(0o755)
        await own(building)
        try:
            building.rename(done)
        except OSError:
            if not done.exists():
                raise
        return done
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _fill_skeleton(root: Path) -> None:
    for name, mode in _FOLDERS.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(mode)
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        host = Path("/") / name
        if host.is_symlink():
            (root / name).symlink_to(host.readlink())
    (root / "var/run").symlink_to("/run")
    for _, shown in _host_binds():
        (root / shown.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for name in _copied():
        source, target = Path("/etc") / name, root / "etc" / name
        if source.exists() or source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(str(source), str(target))
    for name, text in (("passwd", _ACCOUNTS), ("group", _GROUP), ("mtab", "")):
        (root / "etc" / name).write_text(text)


def _copied() -> list[str]:
    """What of /etc is copied: also folders to show that are links here."""
    shown = {target for _, target in _host_binds()}
    return [*_HOST_ETC, *(name for name in _HOST_ETC_FOLDERS if f"/etc/{name}" not in shown)]


def _copy(source: str, target: str) -> None:
    """Copy links as links and readable files as files; what this account may not read stays out."""
    content, names, link = b"", [], ""
    try:
        mode = os.lstat(source).st_mode
        if stat.S_ISLNK(mode):
            link = os.readlink(source)  # noqa: PTH115 - hundreds of them
        elif stat.S_ISDIR(mode):
            names = sorted(os.listdir(source))  # noqa: PTH208 - same
        elif stat.S_ISREG(mode) and mode & stat.S_IROTH:
            content = Path(source).read_bytes()
        else:
            return
    except OSError:
        return
    # What cannot be written is an error: the layer would lack it for ever.
    if stat.S_ISLNK(mode):
        os.symlink(link, target)  # noqa: PTH211 - same
    elif stat.S_ISDIR(mode):
        os.makedirs(target, exist_ok=True)  # noqa: PTH103 - same
        for name in names:
            _copy(f"{source}/{name}", f"{target}/{name}")
    else:
        Path(target).write_bytes(content)
        Path(target).chmod(0o644)


def open_trees(paths: Sequence[Path]) -> list[int]:
    """Detached mounts of folders, which root opens for a keeper that could not reach them by path."""
    fds: list[int] = []
    for path in paths:
        fd = _libc().syscall(_OPEN_TREE, -100, os.fsencode(path), _CLONE_TREE)
        if fd < 0:
            for each in fds:
                os.close(each)
            raise SandboxError(f"cannot open {path} as a mount: {os.strerror(ctypes.get_errno())}")
        fds.append(fd)
    return fds


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

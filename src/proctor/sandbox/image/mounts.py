"""What `RUN --mount` asks for: caches, files of the context or of other stages, temporary folders."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from proctor.errors import ImageError, LastingImageError, TaskError
from proctor.sandbox.image import words
from proctor.sandbox.image.dockerfile import Instruction
from proctor.sandbox.image.stages import Origin, UnsupportedError

_SAME = {"dst": "target", "destination": "target", "src": "source", "readonly": "ro", "readwrite": "rw"}
_KEYS = {
    "bind": {"target", "source", "from", "ro", "rw"},
    "cache": {"target", "id", "sharing", "mode", "uid", "gid", "ro"},
    "tmpfs": {"target"},
    "secret": {"target", "id", "required", "mode", "uid", "gid", "env"},
}
_FLAGS = {"ro", "rw", "required"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One folder or file that a RUN sees and that does not become part of the image."""

    kind: Literal["bind", "cache", "tmpfs"]
    target: str
    source: str = ""
    """For `bind`: the path in the context, or in the stage or image of `origin`."""
    origin: Origin | None = None
    id: str = ""
    """For `cache`: caches of the same id are the same folder."""
    alone: bool = False
    """For `cache`: one build at a time uses it."""
    read_only: bool = False
    mode: int = 0o755
    uid: int = 0
    gid: int = 0


def read_mount(
    each: Instruction,
    text: str,
    variables: Mapping[str, str],
    workdir: str,
    origin: Callable[[str], Origin],
    where: str,
) -> Mount | None:
    """One `--mount`; None for a secret that is optional."""
    place = f"{where}:{each.line}: RUN --mount"
    options = {name: words.expand(value, variables) for name, value in _options(text)}
    kind = options.pop("type", "bind")
    if kind == "ssh":
        raise LastingImageError(
            f"{place}=type=ssh: builds get no keys of this machine; fetch over https instead"
        )
    if kind not in _KEYS:
        raise UnsupportedError(each.line, f"RUN --mount=type={kind}")
    for name in options:
        if name not in _KEYS[kind]:
            raise UnsupportedError(each.line, f"RUN --mount=type={kind},{name}")
    if kind == "secret":
        if _truth(options.get("required", "false"), place):
            raise ImageError(
                f"{place}={text}: builds of tasks are given no secrets, and this one is required"
            )
        return None
    if not options.get("target") and not options.get("id"):
        raise TaskError(f"{place}: needs target=PATH")
    target = posixpath.normpath(posixpath.join("/", workdir, options.get("target") or options["id"]))
    if kind == "bind":
        return _bind(each, options, target, origin, place)
    if kind == "tmpfs":
        return Mount(kind="tmpfs", target=target, mode=0o1777)
    return _cache(options, target, place)


def _bind(
    each: Instruction, options: Mapping[str, str], target: str, origin: Callable[[str], Origin], place: str
) -> Mount:
    if "rw" in options and _truth(options["rw"], place):
        raise UnsupportedError(each.line, "RUN --mount=type=bind,rw")
    named = options.get("from", "")
    source = options.get("source") or ("/" if named else ".")
    return Mount(
        kind="bind", target=target, source=source, origin=origin(named) if named else None, read_only=True
    )


def _cache(options: Mapping[str, str], target: str, place: str) -> Mount:
    sharing = options.get("sharing", "shared")
    if sharing not in {"shared", "private", "locked"}:
        raise TaskError(f"{place}: sharing is shared, private or locked, not {sharing!r}")
    try:
        mode = int(options.get("mode", "0755"), 8)
        uid, gid = int(options.get("uid", "0")), int(options.get("gid", "0"))
    except ValueError:
        raise TaskError(f"{place}: mode, uid and gid are numbers") from None
    return Mount(
        kind="cache",
        target=target,
        id=options.get("id") or target,
        alone=sharing != "shared",
        read_only=_truth(options.get("ro", "false"), place),
        mode=mode & 0o7777,
        uid=uid,
        gid=gid,
    )


def _options(text: str) -> list[tuple[str, str]]:
    found = []
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        name = _SAME.get(name.lower(), name.lower())
        found.append((name, value if equals else "true" if name in _FLAGS else ""))
    return found


def _truth(text: str, place: str) -> bool:
    if text.lower() not in {"true", "false", "1", "0"}:
        raise TaskError(f"{place}: {text!r} is not true or false")
    return text.lower() in {"true", "1"}

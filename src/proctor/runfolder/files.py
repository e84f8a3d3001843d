"""Files of a run folder: written completely or not at all, read without trusting their author."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

from proctor.disk import make_folders, read_small, write_all
from proctor.errors import StoreError, UsageError
from proctor.model import canonical
from proctor.model.canonical import finite

MAX_DOCUMENT_BYTES = 1 << 30
_MAX_DIGITS = 300
_LARGEST = sys.float_info.max


def write_error(path: Path, error: OSError) -> StoreError:
    """What went wrong when writing, and what to do about it."""
    hints = {
        errno.ENOSPC: "no space is left; free some and try again",
        errno.EDQUOT: "the disk quota is used up; free some space and try again",
        errno.EROFS: "the file system is read-only; choose another folder with --output-dir",
        errno.EACCES: "permission denied; choose another folder with --output-dir",
        errno.EPERM: "not permitted; choose another folder with --output-dir",
    }
    reason = hints.get(error.errno or 0) or (error.strerror or str(error))
    return StoreError(f"{path}: cannot be written: {reason}")


def beside_of(path: Path) -> Path:
    """A name for what will become `path`, which no other process uses: ids may be the same elsewhere."""
    return path.with_name(f".{path.name[:100]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def write_atomic(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, never a part.

    What comes in parts is written as it comes, and is never whole in memory.
    """
    parts: Iterable[str | bytes] = (content,) if isinstance(content, str | bytes) else content
    beside = beside_of(path)
    try:
        with beside.open("wb") as file:
            for part in parts:
                file.write(part.encode("utf-8", "replace") if isinstance(part, str) else part)
        beside.replace(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        beside.unlink(missing_ok=True)


def listed(items: Iterable[str]) -> Iterator[str]:
    """The items of a JSON list, one on each line."""
    for number, item in enumerate(items):
        yield f",\n  {item}" if number else f"  {item}"


_ONCE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def write_once(path: str, text: str) -> None:
    """A small file that nothing refers to yet, in one write; no rename, for there may be thousands.

    Its folder is mostly there; if not, it is made.
    """
    try:
        try:
            fd = os.open(path, _ONCE, 0o644)
        except FileNotFoundError:
            make_folders(os.path.dirname(path))  # noqa: PTH120 - thousands of trials
            fd = os.open(path, _ONCE, 0o644)
        try:
            write_all(fd, text.encode("utf-8", "replace"))
        except OSError:
            Path(path).unlink()
            raise
        finally:
            os.close(fd)
    except OSError as error:
        raise write_error(Path(path), error) from error


def make_folder(path: str | Path) -> None:
    """The folder and those above it."""
    try:
        make_folders(str(path))
    except OSError as error:
        raise write_error(Path(path), error) from error


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill; it becomes `path` on success and is removed on failure."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path}: already exists; choose another place or remove it first")
    make_folder(path.parent)
    beside = beside_of(path)
    make_folder(beside)
    try:
        yield beside
        if path.is_dir():
            path.rmdir()
        beside.rename(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


_SPACED = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_LINES = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",\n ", ": "))


def encode(value: Any, *, indent: bool = False, lines: bool = False) -> str:
    """JSON that any parser reads: what is not finite becomes null, a lone surrogate is escaped.

    With `lines` every value is on a line of its own: readable, and many times as fast as `indent`.
    """
    if not indent and not lines:
        return canonical.encode(value)
    write = _indented if indent else _LINES.encode
    try:
        text = write(value)
    except ValueError:
        text = write(finite(value))
    return text if canonical.is_unicode(text) else canonical.encode(value)


_NESTED = (dict, list, tuple)
_WIDTH = 100
_LONG = 200
"""A list of more items has one on each line, however long it is."""


def _indented(value: Any, margin: str = "") -> str:
    """For people: what is short is on one line, the rest is broken up. Much faster than indenting it all."""
    if not isinstance(value, _NESTED) or not value:
        return _text(value)
    # What has many parts is long without being written out to see.
    if margin and len(value) <= _WIDTH // 3:
        line = _SPACED.encode(value)
        if len(margin) + len(line) <= _WIDTH:
            return line
    inner = f"{margin} "
    if isinstance(value, dict):
        if not any(isinstance(item, _NESTED) for item in value.values()):
            return f"{{\n{inner}{_flat(inner).encode(value)[1:-1]}\n{margin}}}"
        parts = [f"{_key(key)}: {_indented(item, inner)}" for key, item in value.items()]
        return f"{{\n{inner}" + f",\n{inner}".join(parts) + f"\n{margin}}}"
    if any(isinstance(item, _NESTED) for item in value):
        long = len(value) > _LONG
        parts = [_SPACED.encode(item) if long else _indented(item, inner) for item in value]
        return f"[\n{inner}" + f",\n{inner}".join(parts) + f"\n{margin}]"
    return _SPACED.encode(value)


@cache
def _flat(margin: str) -> json.JSONEncoder:
    """Writes every value on a line of its own."""
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(f",\n{margin}", ": "))


def _text(value: Any) -> str:
    return encode_basestring(value) if type(value) is str else _SPACED.encode(value)


def _key(key: Any) -> str:
    """As the encoder writes keys, also those that are not text."""
    if isinstance(key, str):
        return _text(key)
    return _SPACED.encode({key: 0})[1:].rpartition(": 0}")[0]


def write_json(path: Path, value: Any) -> None:
    """One JSON document, indented for people."""
    write_atomic(path, encode(value, indent=True) + "\n")


_HUGE = re.compile(rb"[0-9]{301}|[eE]\+?[0-9]{3}")
"""A number can only be out of range with so many digits, or with an exponent of three."""


def decode(text: bytes, place: str) -> Any:
    """JSON from a stranger: no NaN, no infinite or absurdly long number, no bottomless nesting."""
    try:
        return (_CAREFUL if _HUGE.search(text) else _QUICK).decode(text.decode())
    except RecursionError:
        raise UsageError(f"{place}: nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{place}: not valid JSON: {error}") from error


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if -_LARGEST <= value <= _LARGEST:
        return value
    raise ValueError(f"the number {text[:40]} is out of range")


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits is out of range")
    return int(text)


_QUICK = json.JSONDecoder(parse_constant=_refuse)
_CAREFUL = json.JSONDecoder(parse_constant=_refuse, parse_float=_float, parse_int=_int)


def regular_file(root: Path, relative: str) -> Path:
    """A plain file under root, reached through plain folders only; no link, no device, no way out."""
    path = root
    parts = relative.split("/")
    if not all(parts) or any(part in {".", ".."} or "\0" in part for part in parts):
        raise UsageError(f"{relative!r} is not a path inside the run folder")
    for number, part in enumerate(parts):
        path = path / part
        try:
            mode = path.lstat().st_mode
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}") from error
        wanted = stat.S_ISREG if number == len(parts) - 1 else stat.S_ISDIR
        if not wanted(mode):
            kind = "a link" if stat.S_ISLNK(mode) else "not a plain file or folder"
            raise UsageError(f"{path}: {kind}; a run folder has only plain files")
    return path


def read_document(root: Path, name: str) -> dict[str, Any]:
    """A JSON object from a plain file under root."""
    path = regular_file(root, name)
    try:
        value = decode(read_small(path, MAX_DOCUMENT_BYTES), str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path}: a JSON object is expected here")
    return value

"""One `task.toml` as it is read: typed values out of its tables, and a line for whatever is wrong.

`format.json` is Harbor's format as one table: every key and every file, and what is done with each. The
reader warns about keys that are not there, the reference page is written from it, and a test tries every row.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.spec.positions import KeyPath, Places

Status = Literal["honoured", "refused", "irrelevant"]


class FieldRule(NamedTuple):
    """What Proctor does with one key or file."""

    status: Status
    """`refused`: the task is read, and is not run; `irrelevant`: nothing that a run depends on."""
    meaning: str


def _rules(rows: Mapping[str, tuple[Status, str]]) -> Mapping[str, FieldRule]:
    return {name: FieldRule(*row) for name, row in rows.items()}


_FORMAT = json.loads(Path(__file__).with_name("format.json").read_bytes())
TABLES: Mapping[str, Mapping[str, FieldRule]] = {
    table: _rules(rows) for table, rows in _FORMAT["tables"].items()
}
"""Table of `task.toml` → key → what is done with it."""
FILES: Mapping[str, FieldRule] = _rules(_FORMAT["files"])
KNOWN_SCHEMAS = ("1.0", "1.1", "1.2", "1.3", "1.4")

_MAX_BYTES = 1 << 20
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*$", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _elsewhere(key: str, table: str) -> str:
    """Where a key that is in the wrong table belongs."""
    places = [name for name, rules in TABLES.items() if key in rules and name != table]
    return f"; it belongs in {places[0]}" if places else ""


def size_bytes(value: object, where: str) -> int:
    """A size as older files write it: "2G", "512M", or plain bytes."""
    match = _SIZE.match(str(value))
    if not match:
        raise TaskError(f"{where}: {value!r} is not a size; write 512M, 2G or a number of bytes")
    return int(float(match[1]) * 1024 ** _POWER[match[2].lower()])


class Table(dict[str, Any]):
    """A table that knows where in the file it is."""

    path: KeyPath = ()
    """The keys that lead to it, and the numbers of entries of lists: `("steps", 1, "agent")`."""

    @property
    def name(self) -> str:
        """As people write it, steps counted from one: `agent`, `steps 2.agent`."""
        name = ""
        for part in self.path:
            name += f" {part + 1}" if isinstance(part, int) else f".{part}"
        return name.removeprefix(".")


class TomlFile:
    """The content of a file. Faults raise TaskError or are collected as warnings, both with a line."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.warnings: list[str] = []
        try:
            self.text = read_small(file, _MAX_BYTES).decode()
            self.data = self.named(tomllib.loads(self.text), ())
        except OSError as error:
            raise TaskError(f"{file}: cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise TaskError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from error
        except tomllib.TOMLDecodeError as error:
            raise TaskError(f"{file}: not valid TOML: {error}") from error
        except RecursionError:
            raise TaskError(f"{file}: not valid TOML: nested too deeply") from None

    def named(self, data: Mapping[str, Any], path: KeyPath) -> Table:
        """A table with its place."""
        found = Table(data)
        found.path = path
        return found

    def table(self, data: Mapping[str, Any], key: str) -> Table:
        """A table of a table; empty when it is not there."""
        found = data.get(key, {})
        if not isinstance(found, dict):
            raise self.wrong(key, found, "a table", data)
        return self.named(found, (*_path_of(data), key))

    def tables(self, data: Mapping[str, Any], key: str) -> list[Table]:
        """A list of tables."""
        found = data.get(key, [])
        if not isinstance(found, list):
            raise self.wrong(key, found, "a list of tables", data)
        if wrong := [each for each in found if not isinstance(each, dict)]:
            raise self.wrong(key, wrong[0], "a table", data)
        return [self.named(each, (*_path_of(data), key, at)) for at, each in enumerate(found)]

    def strings(self, data: Mapping[str, Any], key: str) -> tuple[str, ...]:
        """A list of texts."""
        found = data.get(key)
        if found is None:
            return ()
        if not isinstance(found, list) or any(isinstance(each, dict | list) for each in found):
            raise self.wrong(key, found, "a list of texts", data)
        return tuple(str(each) for each in found)

    def number(self, data: Mapping[str, Any], key: str) -> float | None:
        """A number, zero or more; None when it is not there. A number in quotes is one, with a warning."""
        found = data.get(key)
        if found is None:
            return None
        value = _unquoted(found)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise self.wrong(key, found, "a number, zero or more", data)
        if isinstance(found, str):
            self.warn(key, f"'{key}' is a text; write the number without quotes", data)
        return float(value)

    def positive(self, data: Mapping[str, Any], key: str, default: float) -> float:
        """A number above zero."""
        found = self.number(data, key)
        if found is None:
            return default
        if found == 0:
            raise self.wrong(key, found, "more than zero", data)
        return found

    def size(self, data: Mapping[str, Any], megabytes: str, legacy: str) -> int | None:
        """Bytes, from a number of megabytes or from the older text."""
        found = self.number(data, megabytes)
        old = size_bytes(data[legacy], self.place(legacy, data)) if legacy in data else None
        if found is None:
            return old
        size = int(found * 1024 * 1024)
        if old is not None and old != size:
            raise TaskError(
                f"{self.place(legacy, data)}: '{legacy}' and '{megabytes}' contradict each other; keep one"
            )
        return size

    def known(self, table: str, found: Mapping[str, Any], shown: str = "") -> None:
        """Warn about keys that are not in the format's table: a misspelt limit must not vanish silently."""
        for key in found:
            if key not in TABLES[table]:
                near = get_close_matches(key, TABLES[table], 1)
                hint = f"; did you mean '{near[0]}'?" if near else _elsewhere(key, table)
                self.warn(key, f"'{key}' is not a key of {shown or table}{hint}", found)

    def warn(self, key: str, sentence: str, data: Mapping[str, Any] | None = None) -> None:
        """Remember a sentence, once."""
        text = f"{self.place(key, data)}: {sentence}"
        if text not in self.warnings:
            self.warnings.append(text)

    def wrong(self, key: str, found: object, wanted: str, data: Mapping[str, Any] | None = None) -> TaskError:
        """The error for a value that is not what it must be."""
        return TaskError(f"{self.place(key, data)}: '{key}' must be {wanted}, not {found!r}")

    def place(self, key: str, data: Mapping[str, Any] | None = None) -> str:
        """`task.toml:12` where the key is written; the file alone when it is not there."""
        path = _path_of(data)
        found = self._places.of((*path, key)) or self._places.of(path)
        if not found and not path:
            found = next((mark for each, mark in self._places.keys.items() if each[-1] == key), None)
        return f"{self.file}:{found.line}" if found else str(self.file)

    @cached_property
    def _places(self) -> Places:
        return Places(self.text)


def _path_of(data: Mapping[str, Any] | None) -> KeyPath:
    return data.path if isinstance(data, Table) else ()


def _unquoted(value: object) -> object:
    """A number that is written as a text."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value

"""What the scripted provider says: turns of a conversation, and faults, from a file or from Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from proctor.errors import UsageError
from proctor.gateway.apis import Api
from proctor.gateway.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What a request comes down to, whichever API it uses."""

    api: Api
    model: str
    streamed: bool
    turn: int
    """How many turns the model has already had in it."""
    last: str
    """The text of the last message."""
    prompt: str
    """All its text."""
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with a reply. Without a status the reply comes, with what else is said here."""

    status: int = 0
    message: str = "a fault on purpose"
    retry_after_s: float | None = None
    first_byte_s: float = 0.0
    """How long nothing comes."""
    chunk_s: float = 0.0
    """How long to wait before each piece of a stream."""
    cut_after: int | None = None
    """Hang up after so many pieces."""
    malformed: bool = False
    """Send what is not JSON."""
    times: int = 1
    """For how many requests."""
    key: str = ""
    """Only for requests with the key of this name."""
    api: str = ""
    """Only for requests of this API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One reply."""

    text: str = ""
    tools: tuple[Tool, ...] = ()
    usage: Usage | None = None
    """None: counted from the texts, four characters to a token."""
    pieces: int = 0
    """How many pieces of a stream the text comes in; 0: one per word."""
    when: str = ""
    """A pattern that the last message must match; empty: the next in order."""
    fault: Fault | None = None


Script = Callable[[Asking], Turn]
T = TypeVar("T")
_DONE = Turn(text="Done.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All that a script file says."""

    turns: tuple[Turn, ...] = ()
    faults: tuple[Fault, ...] = ()
    models: tuple[str, ...] = ("*",)
    keys: Mapping[str, str] = field(default_factory=dict)
    """Name → key. Without any, every request is let in."""

    def script(self) -> Script:
        """Turns whose pattern fits come first, then those without one, in the order of the conversation."""
        matched = [(re.compile(turn.when), turn) for turn in self.turns if turn.when]
        ordered = [turn for turn in self.turns if not turn.when]

        def reply(asking: Asking) -> Turn:
            for pattern, turn in matched:
                if pattern.search(asking.last):
                    return turn
            return ordered[asking.turn] if asking.turn < len(ordered) else _DONE

        return reply


def commands(*lines: str) -> Script:
    """A model that sends these shell commands in order and then `finish`, as `terminal` expects it."""
    return following(lambda _, turn: lines[turn] if turn < len(lines) else None)


def following(command: Callable[[Mapping[str, Any], int], str | None]) -> Script:
    """A model whose next shell command follows from the request and the number of its turn; None: done."""

    def reply(asking: Asking) -> Turn:
        found = command(asking.body, asking.turn)
        tool = Tool(name="finish") if found is None else Tool(name="shell", arguments={"command": found})
        return Turn(tools=(tool,))

    return reply


def load(path: Path) -> Scenario:
    """A script from a TOML, JSON or YAML file; UsageError with the place of what is wrong."""
    try:
        text = path.read_text()
        values = _parsed(path, text)
    except OSError as error:
        raise UsageError(f"{path}: the script cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not valid {path.suffix.lstrip('.').upper() or 'TOML'}: {error}") from error
    table = _table(values, str(path), {"turns", "faults", "models", "keys"})
    keys = table.get("keys", {})
    if not isinstance(keys, Mapping) or not all(isinstance(each, str) for each in keys.values()):
        raise UsageError(f"{path}: 'keys' is a table of names and keys")
    return Scenario(
        turns=tuple(
            _turn(each, f"{path}: turn {n}") for n, each in enumerate(_list(table, "turns", path), 1)
        ),
        faults=tuple(
            _fault(each, f"{path}: fault {n}") for n, each in enumerate(_list(table, "faults", path), 1)
        ),
        models=tuple(str(each) for each in table.get("models", ["*"])),
        keys=dict(keys),
    )


def _parsed(path: Path, text: str) -> Any:
    if path.suffix == ".json":
        return json.loads(text)
    if path.suffix in {".yaml", ".yml"}:
        import yaml

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from error
    import tomllib

    return tomllib.loads(text)


def _table(value: Any, where: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: is not a table")
    for name in value:
        if name not in known:
            raise UsageError(f"{where}: '{name}' is not known here; known are {', '.join(sorted(known))}")
    return value


def _list(table: Mapping[str, Any], name: str, path: Path) -> Sequence[Any]:
    found = table.get(name, [])
    if not isinstance(found, list):
        raise UsageError(f"{path}: '{name}' is a list of tables")
    return found


def _turn(value: Any, where: str) -> Turn:
    table = dict(_table(value, where, {each.name for each in fields(Turn)}))
    try:
        re.compile(table.get("when", ""))
    except re.error as error:
        raise UsageError(f"{where}: 'when' is not a pattern: {error}") from None
    tools = [_table(each, f"{where}: tool", {"name", "arguments"}) for each in table.pop("tools", [])]
    usage = table.pop("usage", None)
    fault = table.pop("fault", None)
    names = {"prompt", "completion", "cached", "cache_write", "reasoning"}
    counts = _table(usage, f"{where}: usage", names) if usage is not None else None
    return _made(
        Turn,
        where,
        table
        | {
            "tools": tuple(_made(Tool, where, each) for each in tools),
            "usage": counts and _made(Usage, where, {f"{name}_tokens": n for name, n in counts.items()}),
            "fault": fault and _fault(fault, f"{where}: fault"),
        },
    )


def _fault(value: Any, where: str) -> Fault:
    return _made(Fault, where, _table(value, where, {each.name for each in fields(Fault)}))


def _made(kind: type[T], where: str, values: Mapping[str, Any]) -> T:
    try:
        return kind(**values)
    except TypeError as error:
        raise UsageError(f"{where}: {error}") from None

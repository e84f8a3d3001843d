"""A spec from the options of a command line, and a spec as the short TOML that a person would have written.

The TOML is written without a library: the usual one, tomli-w, puts every item of a list on a line of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from proctor.errors import UsageError
from proctor.model.spec import ExperimentBody, Spec, TaskEntry
from proctor.spec.bodies import TASK_DEFAULTS, TASK_SOURCES
from proctor.spec.grammar import safe_name

_BARE = re.compile(r"[A-Za-z0-9_-]+")
GIT_PREFIX = "git+"
"""How the address of a git repository begins where a dataset is named."""


def spec_mapping(tasks: Sequence[str], datasets: Sequence[str] = (), **keys: Any) -> dict[str, Any]:
    """What a file would hold: where the tasks are, and keys of the grammar. An empty value is not said."""
    sources = [_source(each) for each in tasks] + [{"dataset": each} for each in datasets]
    said = {key: list(each) if isinstance(each, tuple) else each for key, each in keys.items()}
    said["name"] = said.get("name") or _name(sources)
    return {**{key: value for key, value in said.items() if value not in (None, [], {})}, "tasks": sources}


def pairs(option: str, values: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` of a repeated option; the last one of a key counts."""
    found: dict[str, str] = {}
    for each in values:
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {key}: expected KEY=VALUE")
        found[key.strip()] = value
    return found


def _source(written: str) -> dict[str, str]:
    if written.startswith(GIT_PREFIX):
        return {"dataset": written}
    return {"zip" if written.lower().endswith(".zip") else "path": written}


def _name(sources: Sequence[Mapping[str, str]]) -> str:
    """A name for the run from what it runs: `config-edit`, `config-edit+2 more`."""
    written = next(iter(sources[0].values()))
    if written.startswith(GIT_PREFIX):
        address, _, inside = written.partition("#")
        written = inside.strip("/") or address.rpartition("/")[2].partition("@")[0].removesuffix(".git")
    last = written.rstrip("/").rpartition("/")[2]
    stem = last[:-4] if last.lower().endswith(".zip") else last
    more = f"+{len(sources) - 1} more" if len(sources) > 1 else ""
    return safe_name(f"{safe_name(stem)[:100]}{more}")


def short_mapping(spec: Spec) -> dict[str, Any]:
    """The spec in its own grammar, without what is the default anyway."""
    data = spec.to_mapping()
    usual = Spec(name="", base_dir="").to_mapping()
    bodies = {key: data.pop(key) for key in ("experiments", "tasks") if key in data}
    short = _without(data, usual)
    if "tasks" in bodies:
        default = _usual_entry()
        short |= _shared([_without(each, default) for each in bodies["tasks"]])
    else:
        default = Spec(name="", experiments=(ExperimentBody(experiment=""),)).to_mapping()["experiments"][0]
        short["experiments"] = [_without(each, default) for each in bodies["experiments"]]
    return short


def toml_text(data: Mapping[str, Any]) -> str:
    """Plain data as TOML: values first, then tables, then lists of tables."""
    tables = {key: each for key, each in data.items() if isinstance(each, Mapping)}
    lists = {key: each for key, each in data.items() if _is_list_of_tables(each)}
    lines = [_line(key, each, key) for key, each in data.items() if key not in tables and key not in lists]
    for key, table in tables.items():
        lines += ["", f"[{_key(key)}]", *(_line(inner, each, key) for inner, each in table.items())]
    for key, items in lists.items():
        for table in items:
            lines += ["", f"[[{_key(key)}]]", *(_line(inner, each, key) for inner, each in table.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def _usual_entry() -> dict[str, Any]:
    entry: dict[str, Any] = Spec(name="", tasks=(TaskEntry(path=""),)).to_mapping()["tasks"][0]
    del entry["path"], entry["agent"]  # both are always written
    return entry


def _without(data: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The items that differ; inside a mapping that has defaults of its own, the same again."""
    short: dict[str, Any] = {}
    for key, value in data.items():
        default = usual.get(key)
        if isinstance(value, dict) and isinstance(default, dict) and default:
            if inner := _without(value, default):
                short[key] = inner
        elif key not in usual or value != default:
            short[key] = value
    return short


def _shared(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Keys that all entries have in common are written once, at the top."""
    shared = {
        key: _one_or_all(entries[0][key])
        for key in TASK_DEFAULTS
        if key in entries[0] and all(each.get(key) == entries[0][key] for each in entries)
    }
    rest = [{key: _one_or_all(value) for key, value in each.items() if key not in shared} for each in entries]
    ordered = [dict(sorted(each.items(), key=lambda item: item[0] not in TASK_SOURCES)) for each in rest]
    return {**shared, "tasks": ordered}


def _one_or_all(value: Any) -> Any:
    """A list of one text is written as the text."""
    return value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) else value


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)


def _line(key: str, value: Any, where: str) -> str:
    return f"{_key(key)} = {_value(value, where)}"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any, where: str) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int() | float():
            return repr(value)
        case Mapping():
            inner = ", ".join(_line(key, each, where) for key, each in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case list() | tuple():
            return f"[{', '.join(_value(each, where) for each in value)}]"
    raise UsageError(f"'{where}' holds an empty value, which TOML cannot express; write the spec as YAML")


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

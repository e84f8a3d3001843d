"""From a spec file to a `Spec`. Every error in the file is a `SpecError` with its place."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.errors import SpecError
from proctor.model.spec import Spec
from proctor.spec.dialects import modernise
from proctor.spec.grammar import safe_name, spec
from proctor.spec.node import Node, from_plain, nearest, plain
from proctor.spec.override import apply

MAX_SPEC_BYTES = 1 << 20
_MARKERS = ("task.toml", "tb_meta.json")
SUFFIXES = (".yaml", ".yml", ".json", ".toml")


def load(
    path: Path,
    *,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    granted: Sequence[str] = (),
) -> Spec:
    """Read a spec file; `overrides` are `a.b=c` and are applied in order.

    `${VAR}` in it is a variable of `environ`, which is this process's own unless given. `granted` are names
    that are secret as those in `pass_env` are.
    """
    root = parse(path)
    modernise(root)
    apply(root, overrides)
    modernise(root)
    base = path.absolute().parent
    found = root.value.get("base_dir") if isinstance(root.value, dict) else None
    if found is not None and isinstance(found.value, str):
        found.value = str(base / found.value)
    secrets = _fill_in(root, os.environ if environ is None else environ, granted)
    return spec(root, name=safe_name(path.stem), base_dir=str(base), secrets=secrets)


def from_mapping(
    data: Mapping[str, Any],
    *,
    file: str = "",
    base_dir: str = ".",
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    check: Callable[[Node], None] | None = None,
) -> Spec:
    """A spec from plain data: a request's body, or what `Spec.to_mapping` wrote, read back unchanged.

    `${VAR}` is filled in only with variables that are given: what was stored has been filled in already.
    `check` sees the tree once the grammar has read it, to refuse what not everybody may ask for.
    """
    root = from_plain(data, file=file)
    modernise(root)
    if overrides:
        apply(root, overrides)
        modernise(root)
    secrets = {} if environ is None else _fill_in(root, environ)
    read = spec(root, name=safe_name(Path(file).stem), base_dir=base_dir, secrets=secrets)
    if check:
        check(root)
    return read


def _fill_in(root: Node, environ: Mapping[str, str], granted: Sequence[str] = ()) -> dict[str, str]:
    """Fill in variables and put references in place of secrets; the secrets that the spec itself held."""
    from proctor.spec.secrets import VariableFiller, granted_names

    filler = VariableFiller(environ, [*granted_names(root), *granted])
    filler.fill(root)
    return filler.literals


def written(path: Path) -> dict[str, Any]:
    """The spec as the person wrote it, as plain data."""
    root = parse(path)
    data = plain(root)
    if not isinstance(data, dict):
        raise root.mark.error("a spec is a mapping of keys to values")
    return data


def parse(path: Path) -> Node:
    """A YAML, TOML or JSON file as a tree that knows its places; a spec, or another file."""
    file = str(path)
    try:
        parser, text = _parser(path), _text(path)
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", file=file) from error
    root = parser(text, file)
    if root is None or root.value is None:
        raise SpecError("the spec is empty", file=file, line=1, column=1)
    return root


def _parser(path: Path) -> Callable[[str, str], Node | None]:
    """Chosen by suffix; imported when needed, so that a TOML spec does not pay for YAML."""
    match path.suffix.lower():
        case ".yaml" | ".yml":
            from proctor.spec.yaml_positions import parse_yaml

            return parse_yaml
        case ".json":
            from proctor.spec.positions import parse_json

            return parse_json
        case ".toml":
            from proctor.spec.positions import parse_toml

            return parse_toml
    if path.is_dir():
        raise SpecError(_folder(path), file=str(path))
    if path.suffix.lower() == ".zip":
        raise SpecError(f"a ZIP, not a spec file; to run the task in it: {_run(path)}", file=str(path))
    ends = f"ends in '{path.suffix}'" if path.suffix else "has no suffix"
    raise SpecError(f"the name {ends}; a spec is a file in {', '.join(SUFFIXES)}", file=str(path))


def _text(path: Path) -> str:
    file = str(path)
    if path.is_dir():
        raise SpecError(_folder(path), file=file)
    if not path.exists():
        raise SpecError(f"the file does not exist{_sibling(path)}", file=file)
    raw = read_small(path, MAX_SPEC_BYTES)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise SpecError("not UTF-8 text from here on", file=file, line=line, column=column) from None
    return text.replace("\r\n", "\n")


def _folder(path: Path) -> str:
    inside = sorted(each.name for each in path.iterdir() if each.suffix.lower() in SUFFIXES)[:5]
    tasks = any((path / place).is_file() for place in _MARKERS) or any(
        next(path.glob(f"*/{place}"), None) for place in _MARKERS
    )
    hint = f"; to run the tasks in it: {_run(path)}" if tasks else ""
    return "a folder, not a spec file" + (hint or (f"; it contains {', '.join(inside)}" if inside else ""))


def _run(path: Path) -> str:
    return f"proctor run -t {shlex.quote(str(path))} -a oracle"


def _sibling(path: Path) -> str:
    if not path.parent.is_dir():
        return f"; there is no folder '{path.parent}' either"
    names = [each.name for each in path.parent.iterdir() if each.suffix.lower() in SUFFIXES]
    hint = nearest(path.name, names)
    return hint if "did you mean" in hint else ""

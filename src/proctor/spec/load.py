"""From a spec file to a `Spec`. Whatever is wrong with the file is a `SpecError` that says where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.errors import SpecError
from proctor.model.spec import Spec
from proctor.spec.dialects import modernise
from proctor.spec.grammar import safe_name, spec
from proctor.spec.node import Node, from_plain, nearest, plain
from proctor.spec.override import apply

MAX_SPEC_BYTES = 1 << 20
SUFFIXES = (".yaml", ".yml", ".json", ".toml")


def load(path: Path, *, overrides: Sequence[str] = ()) -> Spec:
    """Read a spec file; `overrides` are `a.b=c` and are applied in order."""
    root = _parse(path)
    modernise(root)
    apply(root, overrides)
    modernise(root)
    base = path.absolute().parent
    found = root.value.get("base_dir") if isinstance(root.value, dict) else None
    if found is not None and isinstance(found.value, str):
        found.value = str(base / found.value)
    return spec(root, name=safe_name(path.stem), base_dir=str(base))


def from_mapping(data: Mapping[str, Any], *, file: str = "", base_dir: str = ".") -> Spec:
    """A spec from plain data: a request's body, or what `Spec.to_mapping` wrote, read back unchanged."""
    root = from_plain(data, file=file)
    modernise(root)
    return spec(root, name=safe_name(Path(file).stem), base_dir=base_dir)


def written(path: Path) -> dict[str, Any]:
    """The spec as the person wrote it, as plain data."""
    root = _parse(path)
    data = plain(root)
    if not isinstance(data, dict):
        raise root.mark.error("a spec is a mapping of keys to values")
    return data


def parse(path: Path) -> Node:
    """A YAML, TOML or JSON file as a tree that knows its places; for files that are not specs."""
    return _parse(path)


def _parse(path: Path) -> Node:
    file = str(path)
    try:
        parse, text = _parser(path), _text(path)
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", file=file) from error
    root = parse(text, file)
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
            from proctor.spec.json_positions import parse_json

            return parse_json
        case ".toml":
            from proctor.spec.toml_positions import parse_toml

            return parse_toml
    if path.is_dir():
        raise SpecError(_folder(path), file=str(path))
    ends = f"ends in '{path.suffix}'" if path.suffix else "has no suffix"
    raise SpecError(f"the name {ends}; a spec is a file in {', '.join(SUFFIXES)}", file=str(path))


def _text(path: Path) -> str:
    file = str(path)
    if path.is_dir():
        raise SpecError(_folder(path), file=file)
    if not path.exists():
        raise SpecError(f"the file does not exist{_sibling(path)}", file=file)
    if not path.is_file():
        raise SpecError("not a regular file", file=file)
    with path.open("rb") as stream:
        raw = stream.read(MAX_SPEC_BYTES + 1)
    if len(raw) > MAX_SPEC_BYTES:
        raise SpecError(f"larger than {MAX_SPEC_BYTES >> 20} MiB; a spec is a small file", file=file)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise SpecError("not UTF-8 text from here on", file=file, line=line, column=column) from None
    return text.replace("\r\n", "\n")


def _folder(path: Path) -> str:
    inside = sorted(each.name for each in path.iterdir() if each.suffix.lower() in SUFFIXES)[:5]
    return "a folder, not a spec file" + (f"; it holds {', '.join(inside)}" if inside else "")


def _sibling(path: Path) -> str:
    if not path.parent.is_dir():
        return f"; there is no folder '{path.parent}' either"
    names = [each.name for each in path.parent.iterdir() if each.suffix.lower() in SUFFIXES]
    hint = nearest(path.name, names)
    return hint if "did you mean" in hint else ""

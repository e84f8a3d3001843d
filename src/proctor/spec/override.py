"""`--set a.b=c`: change a spec from the command line; it is checked as if it had been written in the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proctor.errors import SpecError
from proctor.model.secret import holds_credential, looks_secret
from proctor.spec.bodies import EXPERIMENT_KEYS, TASK_KEYS
from proctor.spec.dialects import canonical_path
from proctor.spec.node import MAX_DEPTH, Mark, Node, found, plain


def apply(root: Node, overrides: Sequence[str]) -> None:
    """Apply overrides in order, in place. With several bodies, a body's key is set in each of them."""
    for override in overrides:
        path, value, mark = _split(override)
        if not isinstance(root.value, dict):
            return
        for target in _targets(root, path):
            _set(root, target, _parse(value, mark), mark)


def _split(override: str) -> tuple[list[str], str, Mark]:
    path, equals, value = override.partition("=")
    shown = f"{path}=…" if looks_secret(path.rpartition(".")[2]) or holds_credential(value) else override
    mark = Mark(label=f"--set {shown if len(shown) <= 80 else shown[:79] + '…'}")
    parts = [part.strip() for part in path.split(".")]
    if not equals or not all(parts):
        raise mark.error("expected a path, '=' and a value, such as iterations.measured=20")
    if len(parts) > MAX_DEPTH:
        raise mark.error(f"the path is deeper than {MAX_DEPTH} levels")
    return canonical_path(parts), value.strip(), mark


def typed_value(option: str, value: str) -> Any:
    """What `--set` would make of a value: a number, true or false, a list, or text."""
    return plain(_parse(value.strip(), Mark(label=option))) if value.strip() else ""


def _parse(value: str, mark: Mark) -> Node:
    from proctor.spec.yaml_positions import parse_yaml

    try:
        node = parse_yaml(value) or Node(None)
    except SpecError as error:
        raise mark.error(f"{error.message}; put the value in quotes to use it as text") from None
    _place(node, mark)
    return node


def _place(node: Node, mark: Mark) -> None:
    node.mark = mark
    node.key_mark = mark
    inner = node.value.values() if isinstance(node.value, dict) else node.value
    for item in inner if isinstance(node.value, dict | list) else ():
        _place(item, mark)


def _targets(root: Node, path: list[str]) -> list[list[str]]:
    for several, keys in (("experiments", EXPERIMENT_KEYS), ("tasks", TASK_KEYS)):
        listed = root.value.get(several)
        if path[0] in keys and listed is not None and isinstance(listed.value, list):
            top = [path] if path[0] in root.value else []
            return [*top, *([several, str(at), *path] for at in range(len(listed.value)))]
    return [path]


def _set(root: Node, path: list[str], item: Node, mark: Mark) -> None:
    parent = root
    for depth, part in enumerate(path[:-1]):
        parent = _step(parent, part, ".".join(path[:depth]), mark)
    last, where = path[-1], ".".join(path[:-1])
    if isinstance(parent.value, list):
        parent.value[_index(parent, last, where, mark)] = item
    else:
        _mapping(parent, where, mark)[last] = item


def _step(parent: Node, part: str, where: str, mark: Mark) -> Node:
    if isinstance(parent.value, list):
        following: Node = parent.value[_index(parent, part, where, mark)]
    else:
        following = _mapping(parent, where, mark).setdefault(part, Node(None, mark, mark))
    if following.value is None:
        following.value = {}
    return following


def _mapping(parent: Node, where: str, mark: Mark) -> dict[str, Node]:
    if not isinstance(parent.value, dict):
        raise mark.error(f"'{where}' is {found(parent.value)}; it has no keys to set")
    return parent.value


def _index(parent: Node, part: str, where: str, mark: Mark) -> int:
    length = len(parent.value)
    if not (part.isascii() and part.isdigit() and len(part) < 10 and int(part) < length):
        entries = f"its entries are 0 to {length - 1}" if length else "it is empty"
        raise mark.error(f"'{part}' is not an entry of the list '{where}'; {entries}")
    return int(part)

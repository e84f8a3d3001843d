"""YAML into nodes with places, from PyYAML's event stream.

Events rather than objects: each carries its mark, none constructs anything, and depth, aliases and duplicate
keys are decided here. Plain words follow YAML 1.2: `no` and `on` are text, `1e3` is a number, dates are text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from proctor.errors import SpecError
from proctor.spec.node import MAX_DEPTH, Lines, Mark, Node, scalar, spend

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*")
_BASED = re.compile(r"0(?:x[0-9a-fA-F]+|o[0-7]+|b[01]+)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NO_CHARACTER = re.compile(r"\\U(?!000[0-9a-fA-F]|0010)[0-9a-fA-F]{8}")
_TAG = "tag:yaml.org,2002:"


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come yet."""

    node: Node
    anchor: str | None
    key: tuple[str, Mark, bool] | None = None
    """The key that waits for its value, and whether it is the merge key."""
    merged: list[Node] = field(default_factory=list)


class _Builder:
    """Turns events into one tree without recursion, within limits."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.open: list[_Open] = []
        self.anchors: dict[str, Node | None] = {}
        self.root: Node | None = None
        self.count = 0
        self.documents = 0

    def feed(self, event: yaml.Event) -> None:
        start = event.start_mark
        mark = Mark(self.file, start.line + 1, start.column + 1) if start else Mark(self.file)
        match event:
            case yaml.DocumentStartEvent():
                self.documents += 1
                if self.documents > 1:
                    raise mark.error("a second document starts here; a spec is one document")
            case yaml.ScalarEvent():
                self._scalar(event, mark)
            case yaml.AliasEvent():
                self._alias(event, mark)
            case yaml.MappingStartEvent():
                self._start(event, Node({}, mark), "map")
            case yaml.SequenceStartEvent():
                self._start(event, Node([], mark), "seq")
            case yaml.CollectionEndEvent():
                self._end()

    def _scalar(self, event: yaml.ScalarEvent, mark: Mark) -> None:
        if self._expects_key():
            merge = event.value == "<<" and event.style is None
            self.open[-1].key = (scalar(event.value, mark).value, mark, merge)
            return
        is_plain = event.style is None and event.tag is None
        value = _plain_word(event.value, mark) if is_plain else _tagged(event, mark)
        node = scalar(value, mark, None if isinstance(value, str) else event.value)
        if event.anchor:
            self.anchors[event.anchor] = node
        self._add(node)

    def _alias(self, event: yaml.AliasEvent, mark: Mark) -> None:
        if self._expects_key():
            raise mark.error("a key must be text, not an alias")
        if event.anchor not in self.anchors:
            raise mark.error(f"'*{event.anchor}' refers to nothing: no '&{event.anchor}' comes before it")
        target = self.anchors[event.anchor]
        if target is None:
            raise mark.error(f"'*{event.anchor}' refers to something that contains it")
        self._add(self._copy(target, mark))

    def _start(self, event: Any, node: Node, kind: str) -> None:
        if self._expects_key():
            raise node.mark.error("a key must be text, not a list or a mapping")
        if event.tag not in {None, "!", _TAG + kind}:
            raise node.mark.error(f"the tag '{event.tag}' is not allowed in a spec")
        if len(self.open) >= MAX_DEPTH:
            raise node.mark.error(f"nested deeper than {MAX_DEPTH} levels")
        if event.anchor:
            self.anchors[event.anchor] = None
        self.open.append(_Open(node, event.anchor))

    def _end(self) -> None:
        done = self.open.pop()
        for source in done.merged:
            for key, item in source.value.items():
                if key not in done.node.value:
                    done.node.value[key] = self._copy(item, item.mark)
        if done.anchor:
            self.anchors[done.anchor] = done.node
        self._add(done.node)

    def _expects_key(self) -> bool:
        return bool(self.open) and isinstance(self.open[-1].node.value, dict) and self.open[-1].key is None

    def _add(self, node: Node) -> None:
        self._spend(node.mark)
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        if parent.key is None:
            parent.node.value.append(node)
            return
        (key, key_mark, merge), parent.key = parent.key, None
        if merge:
            parent.merged += _mergeable(node)
            return
        if key in parent.node.value:
            first = parent.node.value[key].place
            raise key_mark.error(f"'{key}' is given twice; the first is in line {first.line}")
        node.key_mark = key_mark
        parent.node.value[key] = node

    def _copy(self, node: Node, mark: Mark, depth: int = 0) -> Node:
        self._spend(mark)
        if len(self.open) + depth > MAX_DEPTH:
            raise mark.error(f"nested deeper than {MAX_DEPTH} levels after aliases are expanded")
        value = node.value
        if isinstance(value, dict):
            value = {key: self._copy(item, mark, depth + 1) for key, item in value.items()}
        elif isinstance(value, list):
            value = [self._copy(item, mark, depth + 1) for item in value]
        return Node(value, node.mark, node.key_mark, node.text)

    def _spend(self, mark: Mark) -> None:
        self.count += 1
        spend(self.count, mark)


def parse_yaml(source: str, file: str = "") -> Node | None:
    """The tree of one YAML document; None when there is nothing in it."""
    builder = _Builder(file)
    try:
        for event in yaml.parse(source, Loader=yaml.SafeLoader):
            builder.feed(event)
    except yaml.MarkedYAMLError as error:
        raise _syntax(error, file) from None
    except yaml.reader.ReaderError as error:
        message = f"not valid YAML: the character U+{int(error.character):04X} may not appear here"
        raise Lines(source, file).mark(error.position).error(message) from None
    except (ValueError, OverflowError):
        # PyYAML turns \U escapes into characters without checking that they exist.
        escape = _NO_CHARACTER.search(source)
        mark = Lines(source, file).mark(escape.start()) if escape else Mark(file)
        raise mark.error("not valid YAML: an escape names a character that does not exist") from None
    return builder.root


def _syntax(error: yaml.MarkedYAMLError, file: str) -> SpecError:
    mark = error.problem_mark or error.context_mark
    message = " ".join(part for part in (error.problem, error.context) if part)
    if "'\\t'" in message:
        message += "; indent with spaces"
    line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
    return SpecError(f"not valid YAML: {message}", file=file, line=line, column=column)


def _mergeable(node: Node) -> list[Node]:
    sources: list[Node] = node.value if isinstance(node.value, list) else [node]
    for source in sources:
        if not isinstance(source.value, dict):
            raise source.mark.error("'<<' merges mappings, but this is not a mapping")
    return sources


def _plain_word(word: str, mark: Mark) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    if _NOT_FINITE.fullmatch(word):
        raise mark.error(f"{word} is not a finite number")
    try:
        if _INTEGER.fullmatch(word):
            return int(word)
        if _BASED.fullmatch(word):
            return int(word, 0)
    except ValueError:
        raise mark.error("the number has too many digits") from None
    return float(word.replace("_", "")) if _FLOAT.fullmatch(word) else word


def _tagged(event: yaml.ScalarEvent, mark: Mark) -> Any:
    kind = (event.tag or "!").removeprefix(_TAG)
    if kind in {"!", "str"}:
        return event.value
    value = _plain_word(event.value, mark)
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    names = {"int": int, "float": float, "bool": bool, "null": type(None)}
    if kind not in names:
        raise mark.error(f"the tag '{event.tag}' is not allowed in a spec")
    if type(value) is not names[kind]:
        raise mark.error(f"'{event.value}' does not match its tag '!!{kind}'")
    return value

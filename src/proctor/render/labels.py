"""Names of parameter points for a table: what all of them share is told once, what differs is the label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_PARAM = re.compile(rf", (?={_NAME.pattern}=)")
"""A comma inside of a value is not followed by another parameter's name."""


class Labels(NamedTuple):
    """The names of some points, taken apart."""

    shared: str
    """What all names have in common; empty when that is nothing."""
    own: list[str]
    """What sets each apart, in the same order."""


def apart(names: Sequence[str]) -> Labels:
    """Take `subject(a=1, b=2)` and its like apart. Names of any other form stay as they are."""
    parsed = [_parse(name) for name in names]
    if len(names) < 2 or any(each is None for each in parsed):
        return Labels("", list(names))
    known = [each for each in parsed if each is not None]
    params = [dict(inside) for _, inside in known]
    if any(each.keys() != params[0].keys() for each in params):
        return Labels("", list(names))
    varying = [name for name in params[0] if len({each[name] for each in params}) > 1]
    one_subject = len({subject for subject, _ in known}) == 1
    if not varying and one_subject:
        return Labels("", list(names))
    own = []
    for (subject, _), values in zip(known, params, strict=True):
        inside = ", ".join(f"{name}={values[name]}" for name in varying)
        own.append(inside if one_subject else f"{subject}({inside})" if inside else subject)
    fixed = ", ".join(f"{name}={params[0][name]}" for name in params[0] if name not in varying)
    shared = ": ".join(filter(None, (known[0][0] if one_subject else "", fixed)))
    return Labels(shared, own)


def heading(own: Sequence[str]) -> Labels:
    """Labels of the form `a=1, b=2` as a heading `a, b` and the values below it; others below `point`."""
    parsed = [_pairs(label) for label in own]
    names = [[name for name, _ in pairs or ()] for pairs in parsed]
    if not own or not names[0] or any(each != names[0] for each in names):
        return Labels("point", list(own))
    return Labels(", ".join(names[0]), [", ".join(value for _, value in pairs or ()) for pairs in parsed])


def _parse(name: str) -> tuple[str, list[tuple[str, str]]] | None:
    subject, opened, inside = name.partition("(")
    if not opened:
        return subject, []
    if not inside.endswith(")"):
        return None
    pairs = _pairs(inside[:-1])
    return None if pairs is None else (subject, pairs)


def _pairs(text: str) -> list[tuple[str, str]] | None:
    pairs = [part.partition("=") for part in _PARAM.split(text)]
    if not all(equals and _NAME.fullmatch(name) for name, equals, _ in pairs):
        return None
    return [(name, value) for name, _, value in pairs]

"""Records of a run folder turned back into the model, with every field checked first."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from proctor.errors import UsageError
from proctor.runfolder.files import decode
from proctor.store.rows import decoder

T = TypeVar("T")

_WHERE = re.compile(r"(?s)(.*) - at `\$\.?(.*?)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")


def read_line(line: bytes, kind: type[T], place: str) -> T:
    """What a type says of a JSON object; fields of a later version are passed over."""
    try:
        return decoder(kind).decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Said better by the careful reader, which also takes the lone surrogates that Python writes.
        return checked(decode(line, place), kind, place)


def checked(data: Any, kind: type[T], place: str) -> T:
    """The same of decoded JSON; where it is wrong, the error says which field is."""
    if not isinstance(data, dict):
        raise UsageError(f"{place}: a JSON object is expected here")
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{place}: {_sentence(str(error))}") from None


def _sentence(message: str) -> str:
    """Msgspec's message, with the field first."""
    where = _WHERE.fullmatch(message)
    said, field = where.groups() if where else (message, "")
    if missing := _MISSING.fullmatch(said):
        return f"'{'.'.join(filter(None, (field, missing[1])))}' is missing"
    said = said[:1].lower() + said[1:]
    return f"'{field}': {said}" if field else said

"""Records of a run folder turned back into the model, with every field checked first."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from proctor.errors import UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.runfolder.files import decode

T = TypeVar("T")

TRIAL = msgspec.json.Decoder(PlannedTrial)
ATTEMPT = msgspec.json.Decoder(AttemptRecord)
RUN = msgspec.json.Decoder(RunInfo)
_WHERE = re.compile(r"(?s)(.*) - at `\$\.?(.*?)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")


def read_line(line: bytes, decoder: msgspec.json.Decoder[T], place: str) -> T:
    """What a decoder's type says of a JSON object; fields of a later version are passed over."""
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Said better by the careful reader, which also takes the lone surrogates that Python writes.
        return checked(decode(line, place), decoder, place)


def checked(data: Any, decoder: msgspec.json.Decoder[T], place: str) -> T:
    """The same of decoded JSON; where it is wrong, the error says which field is."""
    if not isinstance(data, dict):
        raise UsageError(f"{place}: a JSON object is expected here")
    try:
        return msgspec.convert(data, decoder.type)
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

"""The tape of an attempt: what its agent asked of models and what it got, in order, redacted and compressed.

One line of JSON per pair, after a line about the attempt. While the attempt runs the lines go to a temporary
file as they are; compressed together at the end, what each request repeats costs next to nothing. A tape that
is full ends with a line that says so, and has nothing of what came after.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from proctor.errors import UsageError
from proctor.gateway.apis import Api
from proctor.gateway.bounds import Bounds
from proctor.gateway.usage import Usage
from proctor.model.record import Artifact
from proctor.store.blobs import Blobs

FORMAT = 1
NAME = "tape.jsonl.zst"
MEDIA_TYPE = "application/zstd"
_IN_MEMORY = 1 << 16
_WINDOW_LOG = 24
_PLAIN = ("n", "api", "action", "model", "streamed", "status", "headers", "chunks", "given_up")
Redact = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One request and what was answered."""

    n: int
    api: Api
    action: str
    model: str
    """The full name of the model that it was for."""
    streamed: bool
    request: str
    """An object in JSON."""
    status: int
    headers: Mapping[str, str]
    chunks: tuple[tuple[float, int], ...]
    """Of what came: seconds since the request, and how many bytes."""
    response: bytes = field(repr=False)
    usage: Usage | None
    given_up: bool = False
    """Whether the agent went away before it had all."""

    def line(self) -> bytes:
        """As it is on the tape. The request stands there as the JSON that it is, not as a text in a text."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        try:
            values["response"] = self.response.decode()
        except UnicodeDecodeError:
            values["response_base64"] = base64.b64encode(self.response).decode()
        values["usage"] = (
            {name: getattr(self.usage, name) for name in Usage.__slots__} if self.usage else None
        )
        head = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
        # In JSON an end of line can only stand between values.
        request = self.request.replace("\n", " ").replace("\r", " ")
        return f'{head[:-1]},"request":{request}}}\n'.encode(errors="replace")

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Entry:
        """From a line of the tape."""
        found = dict(values)
        coded = found.pop("response_base64", None)
        found["response"] = base64.b64decode(coded) if coded else found["response"].encode()
        found["request"] = json.dumps(found["request"], ensure_ascii=False)
        found["usage"] = Usage(**found["usage"]) if found["usage"] else None
        found["api"] = Api(found["api"])
        found["chunks"] = tuple((float(at), int(size)) for at, size in found["chunks"])
        return cls(**found)


class Recorder:
    """Writes the tape of one attempt."""

    def __init__(
        self,
        head: Mapping[str, Any],
        secrets: Mapping[str, str],
        folder: Path | None,
        redact: Redact | None,
        bounds: Bounds | None = None,
    ) -> None:
        self.entries = 0
        self.left_out = 0
        """How many pairs are not on it, because it is full."""
        self._bounds = bounds or Bounds()
        self._size = 0
        self._secrets = {value: f"[redacted:{name}]" for name, value in secrets.items() if value}
        self._redact = redact
        place = str(folder) if folder else None
        self._spool: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=place)  # noqa: SIM115 - see close
        self._spool.write(json.dumps({"tape": FORMAT, **head}).encode() + b"\n")

    def clean(self, text: str) -> str:
        """A text without the attempt's token and the providers' keys."""
        for value, marker in self._secrets.items():
            if value in text:
                text = text.replace(value, marker)
        return text

    def add(self, make: Callable[[int], Entry]) -> None:
        """Write one pair, unless the tape is full; what it looks like depends on its number."""
        if self.left_out:
            self.leave_out()
            return
        line = make(self.entries + 1).line()
        if self._size + len(line) > self._bounds.tape_bytes:
            self.leave_out()
            return
        self.entries += 1
        self._size += len(line)
        for value, marker in self._secrets.items():
            if value.encode() in line:
                line = line.replace(value.encode(), marker.encode())
        self._spool.write(self._redact(line) if self._redact else line)

    def leave_out(self) -> None:
        """A pair for which there is no room: from here on nothing is recorded."""
        self.left_out += 1

    @property
    def full(self) -> str:
        """What to know about a tape that is; empty otherwise."""
        if not self.left_out:
            return ""
        return (
            f"the tape is full: it has the first {self.entries} calls, and {self.left_out} are not on it; "
            "it cannot be replayed to its end"
        )

    async def save(self, blobs: Blobs) -> Artifact:
        """Keep the tape as a blob."""
        data = await asyncio.to_thread(self.compressed)
        return await asyncio.to_thread(blobs.put_bytes, data, NAME, MEDIA_TYPE)

    def compressed(self) -> bytes:
        """The whole tape, as it is kept."""
        import zstandard

        parameters = zstandard.ZstdCompressionParameters.from_level(
            3, window_log=_WINDOW_LOG, enable_ldm=True
        )
        target = io.BytesIO()
        self._spool.seek(0)
        with zstandard.ZstdCompressor(compression_params=parameters).stream_writer(
            target, closefd=False
        ) as writer:
            for number, line in enumerate(self._spool):
                if target.tell() > self._bounds.taped_bytes:
                    self.left_out += self.entries - (number - 1)
                    self.entries = number - 1
                    break
                writer.write(line)
            if self.left_out:
                writer.write(json.dumps({"full": True, "left_out": self.left_out}).encode() + b"\n")
        self._spool.seek(0, io.SEEK_END)
        return target.getvalue()

    def close(self) -> None:
        """Forget it."""
        self._spool.close()


@dataclass(frozen=True)
class Tape:
    """A tape that was recorded."""

    head: Mapping[str, Any]
    entries: tuple[Entry, ...]
    left_out: int = 0
    """How many pairs came when it was full, and are not on it."""

    @classmethod
    def read(cls, source: Path | IO[bytes]) -> Tape:
        """From a file, compressed or not, or from an open blob; UsageError when it is no tape."""
        try:
            data = source.read_bytes() if isinstance(source, Path) else source.read()
            head, *rest = _lines(data)
            if head["tape"] == FORMAT:
                last = rest.pop() if rest and rest[-1].get("full") else {}
                return cls(head, tuple(Entry.read(each) for each in rest), int(last.get("left_out", 0)))
        except OSError as error:
            raise UsageError(f"{source}: the tape cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{source}: not a tape of Proctor's: {error}") from error
        raise UsageError(f"{source}: a tape of format {head['tape']}, and this version reads {FORMAT}")


def _lines(data: bytes) -> Iterator[dict[str, Any]]:
    import zstandard

    if data[:1] != b"{":
        try:
            reader = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).stream_reader(data)
            data = reader.read()
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
    for line in data.splitlines():
        yield json.loads(line)

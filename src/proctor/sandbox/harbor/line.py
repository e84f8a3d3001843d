"""Questions and answers between two processes: JSON in frames over a socket, and either end may ask.

Both ends use this file, so it needs nothing but Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

_LENGTH = struct.Struct("!I")
MOST_BYTES = 64 << 20
"""The largest message. Both ends cut what they send to less."""
Answer = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Takes what is asked and its fields."""


class LineLost(Exception):  # noqa: N818 - says what happened
    """The other end is gone."""


class Refused(Exception):  # noqa: N818 - same
    """The other end answered with an error."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        """The type of the error over there."""


class Line:
    """One end. `run` reads until the other end is gone; questions may be asked and answered meanwhile."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
        self._reader, self._writer, self._answer = reader, writer, answer
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._answering: dict[int, asyncio.Task[None]] = {}
        self._lost = False

    async def ask(self, what: str, **fields: Any) -> Any:
        """What the other end answers; Refused or LineLost. When this is cancelled, so is the work there."""
        if self._lost:
            raise LineLost
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"ask": number, "what": what, "with": fields})
            return await answer
        except asyncio.CancelledError:
            with contextlib.suppress(LineLost):
                await self._send({"cancel": number})
            raise
        finally:
            self._asked.pop(number, None)

    async def end_work(self) -> None:
        """Cancel what is being answered, and wait until it has ended; questions can be asked meanwhile."""
        here = asyncio.current_task()
        working = [each for each in self._answering.values() if each is not here]
        for each in working:
            each.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    def close(self) -> None:
        """Send nothing more; the other end sees it, and `run` ends when that has closed its side."""
        self._lost = True
        if not self._writer.is_closing():
            self._writer.write_eof()

    async def run(self) -> None:
        """Read what comes until the line ends; then nothing is answered any more."""
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                if length > MOST_BYTES:
                    return
                self._take(json.loads(await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, OSError, ValueError):
            return
        finally:
            await self._end()

    def _take(self, message: Mapping[str, Any]) -> None:
        if "what" in message:
            number = message["ask"]
            work = self._reply(number, message["what"], message["with"])
            self._answering[number] = asyncio.create_task(work)
        elif "cancel" in message:
            if working := self._answering.get(message["cancel"]):
                working.cancel()
        elif (asked := self._asked.get(message["answer"])) and not asked.done():
            if error := message.get("error"):
                asked.set_exception(Refused(error["kind"], error["message"]))
            else:
                asked.set_result(message.get("value"))

    async def _reply(self, number: int, what: str, fields: Mapping[str, Any]) -> None:
        message: dict[str, Any] = {"answer": number}
        try:
            message["value"] = await self._answer(what, fields)
        except asyncio.CancelledError:
            message["error"] = {"kind": "CancelledError", "message": "cancelled"}
        except BaseException as error:  # noqa: BLE001 - whatever it is, the one who asked decides
            message["error"] = {"kind": type(error).__name__, "message": str(error)}
        finally:
            self._answering.pop(number, None)
        with contextlib.suppress(LineLost):
            try:
                await self._send(message)
            except ValueError as error:
                await self._send({"answer": number, "error": {"kind": "ValueError", "message": str(error)}})

    async def _send(self, message: Mapping[str, Any]) -> None:
        if self._lost:
            raise LineLost
        data = json.dumps(message).encode()
        if len(data) > MOST_BYTES:
            raise ValueError(f"a message of {len(data)} bytes is too large")
        self._writer.write(_LENGTH.pack(len(data)) + data)
        try:
            await self._writer.drain()
        except OSError as error:
            raise LineLost from error

    async def _end(self) -> None:
        self._lost = True
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(LineLost())
        await self.end_work()
        self._writer.close()

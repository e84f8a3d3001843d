"""A line of JSON messages to the harness, and modules from files. Little is imported: every episode waits."""

from __future__ import annotations

import _socket
import io
import json
import os
import sys
from types import ModuleType

TYPE_CHECKING = False  # `typing` takes longer to import than the rest of this
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]


class Line:
    """The connection to the harness, which asks; this side answers."""

    def __init__(self, port: int) -> None:
        line = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        line.connect(("127.0.0.1", port))
        line.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        self._fd = line.detach()
        self._reader = io.open(self._fd, "rb", closefd=False)  # noqa: SIM115, UP020 - as long as the program

    def receive(self) -> Message:
        """The next question; the program ends when there are no more."""
        line = self._reader.readline()
        if not line:
            sys.exit(0)
        message: Message = json.loads(line)
        return message

    def send(self, message: Message) -> None:
        """An answer. What JSON cannot say is sent as text."""
        data = memoryview(json.dumps(message, default=str).encode() + b"\n")
        while data:
            data = data[os.write(self._fd, data) :]


def load(name: str, path: str) -> ModuleType:
    """A module from a file, under a name of its own."""
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than all of this
        exec(compile(file.read(), path, "exec"), module.__dict__)  # noqa: S102 - to run it is what it is for
    return module


def told(error: BaseException) -> Message:
    """An exception, as the harness is told."""
    import traceback

    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return {"type": type(error).__name__, "message": str(error)[:2000], "traceback": "".join(lines)[-8000:]}

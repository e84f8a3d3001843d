"""A child's way to the controller: rows wait in the shared page and go out together, past the timer."""

from __future__ import annotations

import os
import time

from proctor.trial.forkserver.wire import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from proctor.trial.forkserver.page import SharedPage

FLUSH_EVERY_NS = 100_000_000


class RowsLostError(Exception):
    """The measured code closed the harness's descriptor, and the page cannot hold what there is to say."""


class RowWriter:
    """Rows wait in the page, so a crash keeps every finished one."""

    def __init__(self, handle: int, page: SharedPage) -> None:
        self._handle = handle
        self._page = page
        self._identity = _identity(handle)
        self._pid = os.getpid()
        self._flushed_ns = time.monotonic_ns()
        self.lost = False
        """Whether the descriptor is no longer ours to write to."""

    def row(self, message: Mapping[str, Any]) -> None:
        """Keep a row; it is sent with others when a tenth of a second has passed or the page is full."""
        self._keep(encode(message))
        if time.monotonic_ns() - self._flushed_ns > FLUSH_EVERY_NS:
            self.flush()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send now, after everything that waits."""
        self._keep(encode(message))
        self.flush()

    def _keep(self, data: bytes) -> None:
        """Put a frame into the page, or past it when it is too large; RowsLostError when neither works."""
        if self._page.append(data):
            return
        if not self.lost:
            self.flush()
            if self._page.append(data):
                return
            self._write(data)
        if self.lost:
            self._page.fill()
            raise RowsLostError

    def flush(self) -> None:
        """Send what waits. When the descriptor is lost it stays in the page, where the lane finds it."""
        waiting = self._page.backlog
        if waiting and not self.lost:
            self._write(waiting)
            if not self.lost:
                self._page.empty()
        self._flushed_ns = time.monotonic_ns()

    def end_if_forked(self) -> None:
        """End silently if this process is a copy that the measured code forked."""
        if os.getpid() != self._pid:
            os._exit(0)

    def _write(self, data: bytes) -> None:
        self.end_if_forked()
        try:
            # The number may be a file of the measured code's by now: look before writing into it.
            self.lost = _identity(self._handle) != self._identity
            while data and not self.lost:
                data = data[os.write(self._handle, data) :]
        except OSError:
            self.lost = True


def _identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino

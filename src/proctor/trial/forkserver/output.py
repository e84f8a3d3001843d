"""What a trial prints: the beginning and the end are kept, however much there is in between."""

from __future__ import annotations

import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


HEAD_BYTES = 64 << 10
TAIL_BYTES = 192 << 10
_CHUNK = 64 << 10


class Output:
    """One stream of a child, through a pipe that never fills for long and a memory that never grows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.total_bytes = 0
        self._head = bytearray()
        self._tail = bytearray()

    def read(self) -> bool:
        """Take what is there; False when every writer has gone."""
        try:
            data = os.read(self.reader, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.total_bytes += len(data)
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]
        return True

    def drain(self) -> None:
        """Read what is still in the pipe, without waiting for other holders of its other end."""
        for _ in range(64):
            before = self.total_bytes
            if not self.read() or self.total_bytes == before:
                return

    def text(self) -> bytes:
        """What was kept, with a line that says how much was not."""
        tail = self._tail[-TAIL_BYTES:]
        dropped = self.total_bytes - len(self._head) - len(tail)
        gap = f"\n[… {dropped} bytes left out …]\n".encode() if dropped else b""
        return bytes(self._head) + gap + bytes(tail)

    def end_of(self, size: int) -> str:
        """The last bytes, as text."""
        return (self._head + self._tail)[-size:].decode("utf-8", "replace")

    def reset(self) -> None:
        """Start again for the next trial of a process that stays alive."""
        self.total_bytes = 0
        self._head.clear()
        self._tail.clear()

    def close(self) -> None:
        """Give both ends back."""
        for handle in (self.reader, self.writer):
            with suppress(OSError):
                os.close(handle)


def make_folder(folder: str) -> None:
    """Make a folder and those above it, unless it is there."""
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - see the top


def remove_tree(folder: str) -> None:
    """Remove a folder and all in it, when it is there."""
    # Loaded when there is something to remove: it imports every archive format there is.
    if os.path.lexists(folder):
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def empty_folder(folder: str) -> None:
    """Remove what is in a folder; the folder stays, or comes to be again."""
    if _list(folder) != []:
        remove_tree(folder)
        make_folder(folder)


def has_files(folder: str) -> bool:
    """Whether a trial left anything; an empty folder is removed."""
    found = _list(folder)
    if found == []:
        try:
            os.rmdir(folder)  # noqa: PTH106 - see the top
        except OSError:
            return False
    return bool(found)


def keep_output(outputs: Iterable[Output], folder: str) -> int:
    """Write each stream that has something beside the trial's own files; the folder may have been deleted."""
    total_bytes = 0
    for output in outputs:
        if output.total_bytes:
            total_bytes += output.total_bytes
            try:
                make_folder(folder)
                with open(f"{folder}/{output.name}.txt", "wb") as file:  # noqa: PTH123 - see the top
                    file.write(output.text())
            except OSError:
                # On a full disk the measurement is still worth keeping without it.
                continue
    return total_bytes


def _list(folder: str) -> list[str] | None:
    try:
        return os.listdir(folder)  # noqa: PTH208 - see the top
    except OSError:
        return None

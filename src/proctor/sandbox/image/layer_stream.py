"""A layer's stream, compressed or not, unpacked into the store if its content has the right digest."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Protocol, cast

from proctor.errors import ImageError, SandboxError
from proctor.sandbox import state
from proctor.sandbox.image.layers import LayerStore

_BLOCK = 1 << 20
_PACKED_BLOCK = 1 << 18
_GZIP = b"\x1f\x8b"
_ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes([low]) + b"\x2a\x4d\x18" for low in range(0x50, 0x60)))
"""The second kind begins a frame to skip, which may come first."""
_WINDOW_BYTES = 1 << 27
_RATIO = 200
_RATIO_FLOOR_BYTES = 1 << 30


class Readable(Protocol):
    """What a layer is read from."""

    def read(self, size: int, /) -> bytes:
        """Up to so many bytes; none at the end."""


Open = Callable[[], AbstractContextManager[Readable]]
"""Opens a layer's bytes from the beginning."""


async def obtain_layer(store: LayerStore, diff_id: str, opened: Open) -> str:
    """Unpack a layer unless it is here; its key in the store."""
    key = layer_key(diff_id)
    await store.obtain(key, lambda target: unpack_layer(store, target, diff_id, opened))
    return key


def layer_key(diff_id: str) -> str:
    """The name of a layer in the store, by the digest of its uncompressed content."""
    return f"oci-{diff_id}"


async def unpack_layer(
    store: LayerStore, target: Path, diff_id: str, opened: Open, stop: Callable[[], None] = lambda: None
) -> None:
    """Unpack a layer into a new folder; ImageError when its content has another digest.

    `stop` is called when nothing more is wanted: a read that waits then has to end.
    """
    keeper = await store.keeper()
    await state.make_folders(keeper, target)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _BLOCK)
    pump = _Pump(opened, writer)
    own_thread = ThreadPoolExecutor(1)  # a shared pool full of pumps would leave none to unpack
    pumping = asyncio.get_running_loop().run_in_executor(own_thread, pump.run)
    unpacking = asyncio.ensure_future(state.unpack_below(keeper, reader, target.parent, target.name))
    try:
        await asyncio.shield(unpacking)
    except SandboxError as error:
        if pump.problem is None:
            pump.problem = ImageError(f"layer {diff_id[:12]}: {error}")
        stop()
    except BaseException as error:  # noqa: BLE001 - raised below, when nothing uses the pipe any more
        pump.problem = error
        stop()
        with contextlib.suppress(SandboxError):
            await unpacking  # the pipe ends, and then it does; until then it reads from it
    finally:
        os.close(reader)  # a pump that still writes then ends
        await pumping
        own_thread.shutdown()
    if pump.problem:
        raise pump.problem
    if pump.seen.hexdigest() != diff_id:
        raise ImageError(f"layer {diff_id[:12]} has another content than its name says; it is damaged")
    store.note_size(layer_key(diff_id), pump.bytes)


class _Pump:
    """Decompresses a layer into a pipe, in a thread."""

    def __init__(self, opened: Open, writer: int) -> None:
        self.problem: BaseException | None = None
        """The first thing that went wrong, here or where the pipe ends; nothing more is read then."""
        self.seen = hashlib.sha256()
        self.bytes = 0
        self._opened = opened
        self._out = os.fdopen(writer, "wb", buffering=0)

    def run(self) -> None:
        """Read everything."""
        with self._out:
            try:
                with self._opened() as raw:
                    self._pass_on(_Counted(raw))
            except (zlib.error, EOFError, gzip.BadGzipFile) as error:
                self.problem = self.problem or ImageError(f"a layer cannot be decompressed: {error}")
            except BaseException as error:  # noqa: BLE001 - raised again where the layer is waited for
                self.problem = self.problem or error

    def _pass_on(self, raw: _Counted) -> None:
        wanted = True
        for data in _plain(raw):
            if self.problem:
                return
            self.seen.update(data)
            self._count(len(data), raw.bytes)
            wanted = wanted and _write(self._out, data)  # tar needs no padding at the end; the digest does
        while raw.read(_PACKED_BLOCK):
            pass  # what follows the compressed data belongs to its digest

    def _count(self, more: int, packed: int) -> None:
        self.bytes += more
        if self.bytes > max(_RATIO_FLOOR_BYTES, _RATIO * packed):
            raise ImageError(
                f"a layer grows to more than {_RATIO} times its compressed size, as a decompression bomb does"
            )


def _write(out: IO[bytes], data: bytes) -> bool:
    view = memoryview(data)
    try:
        while view:
            view = view[out.write(view) or 0 :]
    except BrokenPipeError:
        return False
    return True


class _Counted:
    """Counts what is read, and can be given something back."""

    def __init__(self, raw: Readable) -> None:
        self._raw = raw
        self._given = b""
        self.bytes = 0

    def give_back(self, data: bytes) -> None:
        self._given = data

    def read(self, size: int = _PACKED_BLOCK, /) -> bytes:
        if self._given:
            data, self._given = self._given[:size], self._given[size:]
            return data
        data = self._raw.read(size)
        self.bytes += len(data)
        return data


def _plain(raw: _Counted) -> Iterator[bytes]:
    """The uncompressed content, by what the first bytes say."""
    start = raw.read(_PACKED_BLOCK)
    while 0 < len(start) < 4 and (more := raw.read(_PACKED_BLOCK)):
        start += more
    raw.give_back(start)
    if start[:2] == _GZIP:
        yield from _gunzip(raw)
    elif start[:4] in _ZSTD:
        yield from _unzstd(raw)
    else:
        while data := raw.read(_PACKED_BLOCK):
            yield data


def _gunzip(raw: _Counted) -> Iterator[bytes]:
    """Several gzip members in a row are one content, as some builders write them."""
    with gzip.GzipFile(fileobj=cast("IO[bytes]", raw)) as plain:
        while data := plain.read(_BLOCK):
            yield data


def _unzstd(raw: _Counted) -> Iterator[bytes]:
    import zstandard

    packed = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    try:
        with packed.stream_reader(
            cast("IO[bytes]", raw), read_size=_PACKED_BLOCK, read_across_frames=True, closefd=False
        ) as plain:
            while data := plain.read(_BLOCK):
                yield data
    except zstandard.ZstdError as error:
        raise ImageError(f"a layer cannot be decompressed: {error}") from error

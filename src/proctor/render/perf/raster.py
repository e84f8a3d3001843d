"""The canvas as pixels, and pixels as PNG. Standard library only, so that a chart is made on any machine."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise

from proctor.render.perf import font
from proctor.render.perf.canvas import TONES, Anchor, Point

SCALE = 2
"""Pixels per unit of the canvas."""
FONT_SCALE = 2
_INDEX = {name: number for number, name in enumerate(TONES)}


class Raster:
    """A picture with one byte per pixel: the number of its tone."""

    def __init__(self, width: float, height: float) -> None:
        self.width = round(width * SCALE)
        self.height = round(height * SCALE)
        self._rows = [bytearray(self.width) for _ in range(self.height)]

    def text(self, at: Point, content: str, tone: str = "soft", anchor: Anchor = "start") -> None:
        """Dots of the built-in font."""
        step = (font.WIDTH + 1) * FONT_SCALE
        wide = step * len(content) - FONT_SCALE
        shift = {"start": 0, "middle": wide // 2, "end": wide}[anchor]
        left = round(at[0] * SCALE) - shift
        top = round(at[1] * SCALE) - font.HEIGHT * FONT_SCALE
        for char in content:
            lower = font.DROP if char in font.DROPPED else 0
            for row, bits in enumerate(font.glyph(char), lower):
                for column in range(font.WIDTH):
                    if bits >> (font.WIDTH - 1 - column) & 1:
                        self._fill(
                            left + column * FONT_SCALE, top + row * FONT_SCALE, FONT_SCALE, FONT_SCALE, tone
                        )
            left += step

    def line(self, start: Point, end: Point, tone: str, width: float = 1.0) -> None:
        """A straight one as a rectangle, any other as many steps as its longer side has pixels."""
        thick = max(1, round(width * SCALE))
        half = thick // 2
        x0, y0, x1, y1 = (value * SCALE for value in (*start, *end))
        if round(x0) == round(x1) or round(y0) == round(y1):
            left, top = round(min(x0, x1)) - half, round(min(y0, y1)) - half
            self._fill(left, top, round(abs(x1 - x0)) + thick, round(abs(y1 - y0)) + thick, tone)
            return
        steps = max(1, round(max(abs(x1 - x0), abs(y1 - y0))))
        for step in range(steps + 1):
            part = step / steps
            x, y = round(x0 + (x1 - x0) * part), round(y0 + (y1 - y0) * part)
            self._fill(x - half, y - half, thick, thick, tone)

    def rect(self, at: Point, size: Point, tone: str, told: str = "") -> None:
        """A filled rectangle; a PNG has no tooltips."""
        del told
        left, top = round(at[0] * SCALE), round(at[1] * SCALE)
        right, bottom = round((at[0] + size[0]) * SCALE), round((at[1] + size[1]) * SCALE)
        self._fill(left, top, right - left, bottom - top, tone)

    def path(self, points: Sequence[Point], tone: str, width: float = 1.5) -> None:
        """A line through points."""
        for start, end in pairwise(points):
            self.line(start, end, tone, width)

    def dots(self, points: Sequence[Point], tone: str, radius: float = 2.0) -> None:
        """Discs, row by row."""
        reach = max(1, round(radius * SCALE))
        spans = [(dy, int((reach * reach - dy * dy) ** 0.5)) for dy in range(-reach, reach + 1)]
        for x, y in points:
            for dy, half in spans:
                self._fill(round(x * SCALE) - half, round(y * SCALE) + dy, 2 * half + 1, 1, tone)

    def pixel(self, x: int, y: int) -> str:
        """The tone of one pixel."""
        return list(TONES)[self._rows[y][x]]

    def _fill(self, left: int, top: int, wide: int, tall: int, tone: str) -> None:
        first, last = max(0, left), min(self.width, left + wide)
        if first >= last:
            return
        piece = bytes([_INDEX[tone]]) * (last - first)
        for y in range(max(0, top), min(self.height, top + tall)):
            self._rows[y][first:last] = piece

    def png(self) -> bytes:
        """The picture as an indexed PNG."""
        palette = b"".join(bytes.fromhex(value[1:]) for value in TONES.values())
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 3, 0, 0, 0)
        lines = b"".join(b"\0" + row for row in self._rows)
        return b"".join(
            (
                b"\x89PNG\r\n\x1a\n",
                _chunk(b"IHDR", header),
                _chunk(b"PLTE", palette),
                _chunk(b"IDAT", zlib.compress(lines, 6)),
                _chunk(b"IEND", b""),
            )
        )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

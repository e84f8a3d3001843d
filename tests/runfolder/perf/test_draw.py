"""Charts: a PNG that shows what its SVG does, without a font of the machine; odd data breaks none."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable

import pytest

from proctor.model.outcome import Outcome
from proctor.render.charts.perf import FONT, PIXELS, TONES, Canvas, charts, drawings, png_of
from proctor.runfolder.perf import documents
from proctor.runfolder.perf.documents import PerfRun
from proctor.runfolder.perf.episode import Episode

MakeEpisode = Callable[..., Episode]
MakeRun = Callable[..., PerfRun]


def drawn(run: PerfRun) -> dict[str, tuple[str, bytes]]:
    return charts(documents.summary(run), documents.metrics(run), documents.series(run))


Pixels = list[list[bytes]]
"""Rows of red, green, blue and alpha."""


def decoded(png: bytes) -> Pixels:
    """The picture back from its file, checksums and all."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + data)
        parts[kind] = parts.get(kind, b"") + data
        at += 12 + size
    width, height, depth, colours = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    assert (depth, colours) == (8, 6)
    lines, rows = zlib.decompress(parts[b"IDAT"]), [bytes(4 * width)]
    for row in range(height):
        start = row * (4 * width + 1)
        rows.append(unfiltered(lines[start], lines[start + 1 : start + 1 + 4 * width], rows[-1]))
    return [[row[x : x + 4] for x in range(0, len(row), 4)] for row in rows[1:]]


def unfiltered(kind: int, line: bytes, above: bytes) -> bytes:
    if kind == 0:
        return line
    if kind == 2:
        return bytes([(value + over) & 255 for value, over in zip(line, above, strict=True)])
    row = bytearray(line)
    for at, value in enumerate(line):
        left, over, corner = (row[at - 4], above[at], above[at - 4]) if at >= 4 else (0, above[at], 0)
        if kind == 1:
            guess = left
        elif kind == 3:
            guess = (left + over) // 2
        else:
            to_left, to_over = abs(over - corner), abs(left - corner)
            to_corner = abs(left + over - 2 * corner)
            guess = left if to_left <= min(to_over, to_corner) else over if to_over <= to_corner else corner
        row[at] = (value + guess) & 255
    return bytes(row)


def colours_of(png: bytes) -> set[str]:
    pixels = {pixel for row in decoded(png) for pixel in row}
    return {f"#{pixel[:3].hex()}" for pixel in pixels if pixel[3] == 255}


def drawing(draw: Callable[[Canvas], None], width: float = 60, height: float = 20) -> Pixels:
    canvas = Canvas(height, " ", width=width)
    draw(canvas)
    return decoded(png_of(canvas.document("latency", "d")))


def test_every_chart_is_whole_as_svg_and_as_png(make_run: MakeRun):
    found = drawn(make_run())
    assert set(found) == {"latency", "overhead", "system", "groups"}
    for svg, png in found.values():
        root = ET.fromstring(svg)
        width, height = struct.unpack(">II", png[16:24])
        assert width == float(root.attrib["width"]) * PIXELS
        assert height == float(root.attrib["height"]) * PIXELS
        assert root.attrib["aria-label"]
    rows = decoded(found["overhead"][1])
    assert rows[0][0] == b"\xff\xff\xff\xff"


def test_a_failed_episode_is_drawn_in_another_colour(make_run: MakeRun, make_episode: MakeEpisode):
    bad = make_episode(1, success=False, outcome=Outcome.FAILED, reason="failed")
    svg, png = drawn(make_run([make_episode(0), bad]))["latency"]
    assert 'class="q-bad k r"' in svg
    assert TONES["bad"] in colours_of(png)


def test_text_in_a_chart_cannot_become_markup(make_run: MakeRun, make_episode: MakeEpisode):
    svg, _ = drawn(make_run([make_episode(0, agent="<script>alert(1)</script>")]))["groups"]
    assert "<script>" not in svg


def test_odd_runs_are_drawn_too(make_run: MakeRun, make_episode: MakeEpisode):
    assert drawn(make_run([])) == {}
    still = make_run([make_episode(0, wall_clock_s=0.0, phases_s={})], system={"samples": []})
    assert set(drawn(still)) == {"latency", "overhead", "system", "groups"}
    long = make_episode(0, task_ref="a" * 90 + "@1")
    assert "…" in drawn(make_run([long]))["groups"][0]


def test_shapes_are_where_they_were_put():
    def draw(to: Canvas) -> None:
        to.rect((2, 3), (4, 2), "s0")
        to.line((0, 9), (20, 9), "bad", 2.0)
        to.dots([(15, 4)], "s2", 2.0)
        to.path([(10, 0), (10, 5)], "s3")

    rows = drawing(draw)
    found = {name: rows[y * PIXELS][x * PIXELS][:3].hex() for name, x, y in (
        ("s0", 3, 4), ("paper", 8, 4), ("bad", 12, 9), ("s2", 15, 4), ("s3", 10, 3),
    )}  # fmt: skip
    assert found == {name: TONES[name][1:] for name in found}


@pytest.mark.parametrize("anchor", ["start", "middle", "end"])
def test_text_is_set_from_its_anchor(anchor: str):
    rows = drawing(lambda to: to.text((30, 15), "HHH", "ink", anchor))  # type: ignore[arg-type]
    columns = [x for x in range(60 * PIXELS) if any(row[x] != b"\xff" * 4 for row in rows)]
    middle = (columns[0] + columns[-1]) / 2
    assert {"start": middle > 62, "middle": abs(middle - 60) <= 2, "end": middle < 58}[anchor]


def test_the_letters_that_charts_use_are_in_the_font_of_the_package():
    missing = drawing(lambda to: to.text((5, 15), "漢", "ink"))
    for letter in "azAZ09µ×–…·%≤é":
        assert drawing(lambda to, each=letter: to.text((5, 15), each, "ink")) != missing, letter
    assert (FONT.parent / "DejaVuSans-LICENSE.txt").read_text().startswith("DejaVuSans.ttf is a subset")


def test_the_same_chart_gives_the_same_bytes(make_run: MakeRun):
    assert drawn(make_run()) == drawn(make_run())


def test_an_empty_canvas_is_a_document():
    assert ET.fromstring(Canvas(10, "t").document("latency", "d")).tag.endswith("svg")


def test_on_a_page_a_chart_has_the_colours_of_the_page_and_no_title_of_its_own(make_run: MakeRun):
    run = make_run()
    drawn = drawings(documents.summary(run), documents.metrics(run), documents.series(run))["latency"]()
    assert "<style>" not in drawn
    assert drawn.startswith('<svg class="chart"')
    assert ">Wall clock of each episode<" not in drawn

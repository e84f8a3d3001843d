"""Charts: both pictures from the same calls, a PNG any reader opens, and odd data that breaks none."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable

import pytest

from proctor.model.outcome import Outcome
from proctor.render.perf import font
from proctor.render.perf.canvas import TONES, SvgCanvas
from proctor.render.perf.charts import charts
from proctor.render.perf.raster import SCALE, Raster
from proctor.runfolder.perf import documents
from proctor.runfolder.perf.documents import PerfRun
from proctor.runfolder.perf.episode import Episode

MakeEpisode = Callable[..., Episode]
MakeRun = Callable[..., PerfRun]


def drawn(run: PerfRun) -> dict[str, tuple[str, bytes]]:
    return charts(documents.summary(run), documents.metrics(run), documents.series(run))


def decoded(png: bytes) -> tuple[int, int, list[bytes]]:
    """The picture back from its file, checksums and all."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + data)
        parts[kind] = data
        at += 12 + size
    width, height = struct.unpack(">II", parts[b"IHDR"][:8])
    lines = zlib.decompress(parts[b"IDAT"])
    rows = [lines[row * (width + 1) + 1 : (row + 1) * (width + 1)] for row in range(height)]
    assert len(parts[b"PLTE"]) == 3 * len(TONES)
    return width, height, rows


def test_every_chart_is_whole_as_svg_and_as_png(make_run: MakeRun):
    found = drawn(make_run())
    assert set(found) == {"latency", "overhead", "system", "groups"}
    for svg, png in found.values():
        root = ET.fromstring(svg)
        width, height, rows = decoded(png)
        assert width == float(root.attrib["width"]) * SCALE
        assert height == float(root.attrib["height"]) * SCALE
        assert len(set(b"".join(rows))) > 3
        assert root.attrib["aria-label"]


def test_a_failed_episode_is_drawn_in_another_colour(make_run: MakeRun, make_episode: MakeEpisode):
    bad = make_episode(1, success=False, outcome=Outcome.FAILED, reason="failed")
    svg, png = drawn(make_run([make_episode(0), bad]))["latency"]
    assert 'class="bad k"' in svg
    assert list(TONES).index("bad") in set(b"".join(decoded(png)[2]))


def test_text_in_a_chart_cannot_become_markup(make_run: MakeRun, make_episode: MakeEpisode):
    svg, _ = drawn(make_run([make_episode(0, agent="<script>alert(1)</script>")]))["groups"]
    assert "<script>" not in svg


def test_odd_runs_are_drawn_too(make_run: MakeRun, make_episode: MakeEpisode):
    assert drawn(make_run([])) == {}
    still = make_run([make_episode(0, wall_clock_s=0.0, phases_s={})], system={"samples": []})
    assert set(drawn(still)) == {"latency", "overhead", "system", "groups"}
    long = make_episode(0, task_ref="a" * 90 + "@1")
    assert "…" in drawn(make_run([long]))["groups"][0]


def test_pixels_are_where_they_were_put():
    picture = Raster(20, 10)
    picture.rect((2, 3), (4, 2), "s0")
    picture.line((0, 9), (20, 9), "bad")
    picture.dots([(15, 4)], "s2", 1.0)
    picture.path([(10, 1), (12, 5)], "s3")
    assert picture.pixel(2 * SCALE, 3 * SCALE) == "s0"
    assert picture.pixel(6 * SCALE, 3 * SCALE) == "paper"
    assert picture.pixel(20, 9 * SCALE) == "bad"
    assert picture.pixel(15 * SCALE, 4 * SCALE) == "s2"
    assert picture.pixel(11 * SCALE, 3 * SCALE) == "s3"


def test_what_lies_outside_is_cut_off():
    picture = Raster(10, 10)
    picture.rect((-5, -5), (100, 100), "s0")
    picture.line((-50, 5), (50, 500), "s1")
    picture.text((-30, 5), "outside", "ink")
    assert decoded(picture.png())[:2] == (10 * SCALE, 10 * SCALE)


@pytest.mark.parametrize("anchor", ["start", "middle", "end"])
def test_text_is_set_from_its_anchor(anchor: str):
    picture = Raster(60, 20)
    picture.text((30, 15), "HHH", "ink", anchor)  # type: ignore[arg-type]
    columns = [
        x for x in range(picture.width) if any(picture.pixel(x, y) == "ink" for y in range(picture.height))
    ]
    middle = (columns[0] + columns[-1]) / 2
    assert {"start": middle > 62, "middle": abs(middle - 60) <= 2, "end": middle < 58}[anchor]


def test_every_printable_character_has_a_glyph_of_its_own():
    glyphs = [font.glyph(chr(code)) for code in range(33, 127)]
    assert len(set(glyphs)) == len(glyphs)
    assert all(len(rows) == font.HEIGHT and max(rows) < 1 << font.WIDTH for rows in glyphs)
    assert font.glyph("漢") == font.glyph("?")


def test_an_empty_canvas_is_a_document():
    assert ET.fromstring(SvgCanvas(10, 10).document("t", "d")).tag.endswith("svg")

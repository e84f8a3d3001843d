"""A chart as PNG, from its SVG. With a font of the package, so that it looks the same on every machine."""

from __future__ import annotations

from pathlib import Path

SCALE = 2
"""Pixels per unit of the SVG."""
FONT = Path(__file__).parent.parent / "fonts" / "DejaVuSans.ttf"


def png_of(svg: str) -> bytes:
    """The picture, without a font of this machine."""
    import resvg_py

    return resvg_py.svg_to_bytes(
        svg_string=svg,
        zoom=SCALE,
        skip_system_fonts=True,
        font_files=[str(FONT)],
        sans_serif_family="DejaVu Sans",
    )

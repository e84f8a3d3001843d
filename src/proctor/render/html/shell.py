"""The frame of every page: a single file without scripts or network access, light and dark."""

from __future__ import annotations

from html import escape
from pathlib import Path

from proctor.render.charts.svg import CHART_CSS

CSS = (Path(__file__).parent / "report.css").read_text() + CHART_CSS

# No script may run and nothing may be fetched, whatever ends up in the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def shell(title: str, body: str, footer: str, *, css: str = "") -> str:
    """A whole page around its sections; `title` and `footer` are plain text."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)} · Proctor</title><style>{CSS}{css}</style></head><body><main>{body}"
        f"<footer>{escape(footer)} A single file without scripts or network "
        "access.</footer></main></body></html>\n"
    )

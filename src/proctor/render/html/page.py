"""The page: a list of sections in reading order. A new kind of report adds a section, not a template."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proctor.model.run import RunInfo
from proctor.render.document.html import sections as shown
from proctor.render.html.results import results, timing
from proctor.render.html.sections import (
    artifacts,
    attempts,
    environment,
    failures,
    head,
    notices,
    reproduce,
)
from proctor.render.html.shell import CSS, shell
from proctor.render.html.view import Section, View
from proctor.render.results.gate import gate_section
from proctor.render.rollouts import page as rollouts
from proctor.render.rollouts import spending
from proctor.runfolder.files import write_atomic
from proctor.runfolder.read import RunData


def gate(view: View) -> str:
    """The verdict of the run's gate; empty when none judged it."""
    return gate_of(view.data.info)


def gate_of(info: RunInfo) -> str:
    """The same, of a run without its trials."""
    found = gate_section(info)
    return shown((found,)) if found else ""


__all__ = ["CSS", "ROLLOUTS_CSS", "SECTIONS", "TASK_SECTIONS", "put_gate", "render", "write"]

SECTIONS: tuple[Section, ...] = (
    head,
    gate,
    notices,
    failures,
    results,
    attempts,
    timing,
    artifacts,
    environment,
    reproduce,
)
"""In reading order. Each returns its part of the page, or an empty text."""
TASK_SECTIONS: tuple[Section, ...] = (
    head,
    gate,
    notices,
    rollouts.score,
    spending.cost,
    rollouts.tasks,
    failures,
    attempts,
    spending.latency,
    rollouts.resources,
    artifacts,
    environment,
    reproduce,
)
"""The same for agents on tasks."""

ROLLOUTS_CSS = rollouts.CSS


def render(data: RunData, sections: Sequence[Section] | None = None) -> str:
    """The whole page."""
    view = View.of(data)
    rolled_out = data.info.kind == "task"
    usual = TASK_SECTIONS if rolled_out else SECTIONS
    body = "".join(part(view) for part in (usual if sections is None else sections))
    version = data.info.versions.get("proctor", "")
    footer = f"Written by Proctor {version} from series.jsonl beside this page."
    return shell(data.info.name, body, footer, css=ROLLOUTS_CSS if rolled_out else "")


def write(data: RunData, folder: Path) -> None:
    """Write `report.html`."""
    write_atomic(folder / "report.html", render(data))


def put_gate(info: RunInfo, folder: Path) -> None:
    """Put the run's verdict into its page, if it has one; the rest of the page stays as it is."""
    path = folder / "report.html"
    if not path.is_file():
        return
    page = path.read_text(errors="replace")
    # What a user wrote is escaped, so these are our own.
    start = page.find('<section id="gate">')
    end = page.find("</section>", start) + len("</section>")
    if start < 0:
        start = end = page.find("</header>") + len("</header>")
    if start > len("</header>"):
        write_atomic(path, page[:start] + gate_of(info) + page[end:])

"""What the experiments that run another tool's benchmark have in common.

Imported in the suite's own interpreter, so it imports nothing that Python does not bring.
"""

from __future__ import annotations

import os

from proctor.experiments.base import Experiment, ExperimentContext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class SuiteBenchmark(Experiment):
    """One benchmark of a suite; its own subclass says of which tool."""

    def __init__(self, params: Mapping[str, Any] | None = None, **named: Any) -> None:
        super().__init__(params, **named)
        self.reader_notes: tuple[str, ...] = ()

    def note(self, text: str) -> None:
        """Something that a reader of the numbers should know; said once."""
        if text not in self.reader_notes:
            self.reader_notes = (*self.reader_notes, text)

    @staticmethod
    def label_of(params: Mapping[str, Any]) -> str:
        """What the suite calls it."""
        raise NotImplementedError

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        """Replaced by the benchmark itself when it is ready."""
        raise NotImplementedError("the benchmark was not set up")


def project_of(context: ExperimentContext) -> str:
    """The project's folder, with its code importable."""
    from proctor.experiments.suites.listing import make_importable

    project = os.path.abspath(context.extras.get("project") or ".")
    make_importable(project, installed=bool(context.extras.get("installed")))
    return project

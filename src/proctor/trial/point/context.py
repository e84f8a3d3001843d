"""What an experiment gets to know at one parameter point."""

from __future__ import annotations

from proctor.experiments.base import ExperimentContext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


class PointContext(ExperimentContext):
    """A context whose `run_dir` comes into being when it is first asked for: most points never do."""

    __slots__ = ("_made",)

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self._made = False

    @property
    def run_dir(self) -> Path:
        """The folder for this parameter point alone."""
        folder = super().run_dir
        if not self._made:
            folder.mkdir(parents=True, exist_ok=True)
            self._made = True
        return folder

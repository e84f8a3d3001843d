"""An experiment that fails at one of its points."""

from __future__ import annotations

from proctor import Experiment, ExperimentContext, register_experiment


@register_experiment("raises")
class Raises(Experiment):
    """Raise at n = 2."""

    def __init__(self, n: int = 1) -> None:
        self.n = n

    def execute_once(self, context: ExperimentContext) -> dict[str, int]:  # noqa: ARG002 - nothing needed of it
        """What is timed."""
        if self.n == 2:
            raise ValueError("n is 2")
        return {"n": self.n}

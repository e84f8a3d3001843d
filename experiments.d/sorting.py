"""Sort a list of numbers. The shortest useful experiment: parameters, a setup, one line that is timed."""

from __future__ import annotations

import random
from typing import Any

from proctor import Experiment, ExperimentContext, register_experiment


@register_experiment("sorting", summary="Sort a list that is random, sorted or reversed", tags=("example",))
class Sorting(Experiment):
    """Python's own sort."""

    param_schema = {  # noqa: RUF012 - a plain mapping reads best in an example
        "size": {"type": "int", "default": 1000, "minimum": 1, "description": "numbers to sort"},
        "order": {
            "type": "str",
            "default": "random",
            "choices": ["random", "sorted", "reversed"],
            "description": "how they lie before",
        },
    }

    def setup(self, context: ExperimentContext) -> None:
        """The same seed gives the same numbers."""
        pick = random.Random(context.seed)  # noqa: S311 - repeatable, no secret
        self.numbers = [pick.random() for _ in range(self.params["size"])]
        if self.params["order"] != "random":
            self.numbers.sort(reverse=self.params["order"] == "reversed")

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:  # noqa: ARG002 - nothing needed of it
        """What is timed."""
        result = sorted(self.numbers)
        return {"smallest": result[0]}

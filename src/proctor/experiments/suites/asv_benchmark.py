"""A benchmark of an asv suite with one case of its parameters, as an experiment."""

from __future__ import annotations

import os

from proctor.experiments.base import ExperimentContext, register_experiment
from proctor.experiments.suites.suite import SuiteBenchmark, project_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, ClassVar


@register_experiment(
    "asv_benchmark", summary="A benchmark of an asv suite, with one case of its parameters", tags=("suite",)
)
class AsvBenchmark(SuiteBenchmark):
    """Sets a benchmark of an asv suite up as asv does, and calls it."""

    param_schema: ClassVar[dict[str, Any]] = {
        "suite": {"type": "str", "description": "the suite's folder, from the project's folder"},
        "name": {"type": "str", "description": "module, class and method, as asv has them"},
        "case": {"type": "str", "default": "", "description": "the values of its parameters"},
    }

    def setup(self, context: ExperimentContext) -> None:
        """Import, `setup_cache`, `setup`, and a first call: together within the suite's own time limit."""
        from proctor.experiments.suites.asv_case import Case, limit

        suite = os.path.normpath(os.path.join(project_of(context), self.params["suite"]))
        self.case = Case(suite, self.params["name"], self.params["case"])
        with limit(self.case.timeout_s, "setup and the first call"):
            self.case.set_up(os.path.join(os.path.abspath(str(context._run_dir)), "asv"))  # noqa: SLF001 - as above
            self.execute_once = self.case.call()  # type: ignore[method-assign, assignment]
            if self.case.benchmark.kind == "time" and not self.case.number:
                self.execute_once(context)
        self.slot_calls = self.case.number
        if self.case.number and self.case.benchmark.kind == "time":
            self.before_slot = self.case.again
        for text in self.case.notes():
            self.note(text)

    def teardown(self, context: ExperimentContext) -> None:  # noqa: ARG002 - the base's signature
        """Every `teardown` of the suite."""
        if hasattr(self, "case"):
            self.case.tear_down()

    @staticmethod
    def label_of(params: Mapping[str, Any]) -> str:
        """As asv calls it."""
        case = params.get("case", "")
        return f"{params['name']}({case})" if case else str(params["name"])

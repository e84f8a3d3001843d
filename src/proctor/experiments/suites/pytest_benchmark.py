"""A test that uses pytest-benchmark's fixture, as an experiment."""

from __future__ import annotations

import os

from proctor.experiments.base import ExperimentContext, register_experiment
from proctor.experiments.suites.suite import SuiteBenchmark, project_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, ClassVar


@register_experiment(
    "pytest_benchmark", summary="A test that uses pytest-benchmark's fixture", tags=("suite", "python")
)
class PytestBenchmark(SuiteBenchmark):
    """Runs one test of a suite and measures what it hands to the fixture `benchmark`."""

    param_schema: ClassVar[dict[str, Any]] = {
        "file": {"type": "str", "description": "the test's file, from the project's folder"},
        "test": {"type": "str", "description": "its name as pytest has it, with its parameters"},
        "group": {"type": "str", "default": "", "description": "the group that the suite puts it in"},
    }

    def around_measuring(self, context: ExperimentContext, work: Callable[[], None]) -> None:
        """Run the test; everything is measured where it calls the fixture, with all its fixtures alive."""
        from proctor.experiments.suites.pytest_plugin import run_test

        project = project_of(context)
        folder = os.path.join(os.path.abspath(str(context._run_dir)), "pytest")  # noqa: SLF001 - not made before pytest needs it
        run_test(self, project, f"{self.params['file']}::{self.params['test']}", folder, work)

    @staticmethod
    def label_of(params: Mapping[str, Any]) -> str:
        """As pytest calls it."""
        return f"{params['file']}::{params['test']}"

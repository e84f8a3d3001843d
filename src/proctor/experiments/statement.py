"""A Python statement from a text, as `timeit` takes it; `proctor time` makes one when it is given `-s`."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from itertools import repeat
from typing import Any, ClassVar

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment

_TEMPLATE = """
def loop(_number):
    {setup}
    while True:
        yield
        for _ in _repeat(None, _number):
            {statement}
            pass
"""


@register_experiment("statement", summary="Run a Python statement, as timeit does", tags=("python",))
class Statement(Experiment):
    """Runs `statement` `number` times per call, after `setup` once; both see the same local names."""

    param_schema: ClassVar[dict[str, Any]] = {
        "statement": {"type": "str", "default": "pass", "description": "what is timed"},
        "setup": {"type": "str", "default": "pass", "description": "runs once before, not timed"},
        "number": {"type": "int", "default": 1, "minimum": 1, "description": "how often it runs per call"},
    }

    def setup(self, context: ExperimentContext) -> None:  # noqa: ARG002 - nothing needed of it
        """Compile, and run the setup. Modules in the current folder can be imported, as timeit allows."""
        here = os.getcwd()  # noqa: PTH109 - importing pathlib would cost a worker 20 ms
        if here not in sys.path:
            sys.path.insert(0, here)
        self.loop = compiled(self.params["statement"], self.params["setup"])(self.params["number"])
        next(self.loop)

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:  # noqa: ARG002 - the same
        """Let the statement run."""
        next(self.loop)
        return {}


def compiled(statement: str, setup: str = "pass") -> Any:
    """A generator function whose first step is the setup and whose later ones are the loop.

    A generator keeps the names of both as fast local ones from call to call, as timeit has them in its loop.
    """
    check(statement, setup)
    source = _TEMPLATE.format(setup=_deeper(setup, 4), statement=_deeper(statement, 12))
    names: dict[str, Any] = {"_repeat": repeat, "__name__": "__main__"}
    exec(compile(source, "<statement>", "exec"), names)  # noqa: S102 - running it is the job
    found: Generator[None] = names["loop"]
    return found


def check(statement: str, setup: str = "pass") -> None:
    """SyntaxError for what cannot stand alone: also a `return` or a `break` that would only fit our loop."""
    compile(setup, "<setup>", "exec")
    compile(f"{setup}\n{statement}", "<statement>", "exec")


def _deeper(source: str, columns: int) -> str:
    return (source or "pass").replace("\n", "\n" + " " * columns)

"""Run benchmarks of code and of AI agents, and trust the numbers."""

TYPE_CHECKING = False
"""As `typing` has it; importing that would be most of what importing this package costs."""

if TYPE_CHECKING:
    from proctor.api import Run as Run
    from proctor.api import TrialEvent as TrialEvent
    from proctor.api import compare as compare
    from proctor.api import get_recommended_config as get_recommended_config
    from proctor.api import run as run
    from proctor.errors import ProctorError as ProctorError
    from proctor.experiments.base import REGISTRY as REGISTRY
    from proctor.experiments.base import Experiment as Experiment
    from proctor.experiments.base import ExperimentContext as ExperimentContext
    from proctor.experiments.base import register_experiment as register_experiment
    from proctor.experiments.simulation.logged import (
        configure_for_performance_with_persistence as configure_for_performance_with_persistence,
    )
    from proctor.instruments.base import Instrument as Instrument
    from proctor.instruments.base import register_instrument as register_instrument
    from proctor.model.spec import Spec as Spec
    from proctor.render.reporters import register_reporter as register_reporter
    from proctor.settings import Settings as Settings
    from proctor.tables.frame import load as load
    from proctor.verdicts.compare.judge import Comparison as Comparison

_HOMES = {
    "Comparison": "proctor.verdicts.compare.judge",
    "Experiment": "proctor.experiments.base",
    "ExperimentContext": "proctor.experiments.base",
    "Instrument": "proctor.instruments.base",
    "ProctorError": "proctor.errors",
    "REGISTRY": "proctor.experiments.base",
    "Run": "proctor.api",
    "Settings": "proctor.settings",
    "Spec": "proctor.model.spec",
    "TrialEvent": "proctor.api",
    "compare": "proctor.api",
    "configure_for_performance_with_persistence": "proctor.experiments.simulation.logged",
    "get_recommended_config": "proctor.api",
    "load": "proctor.tables.frame",
    "register_experiment": "proctor.experiments.base",
    "register_instrument": "proctor.instruments.base",
    "register_reporter": "proctor.render.reporters",
    "run": "proctor.api",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - built from the table above, which a test holds


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'proctor' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

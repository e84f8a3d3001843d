"""A folder to work in, scenarios made of few words, and the rough agents on the path."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.resources import Resources

from proctor.runs.perf.guard import MakeListener
from proctor.runs.perf.run import PerfRequest, PerfResult, quiet, run_perf
from proctor.runs.perf.scenario import DEFAULT
from proctor.settings import Settings

TASK = str(DEFAULT.parent / "word-count")
Run = Callable[..., PerfResult]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / ".proctor", rollouts_dir=tmp_path / "rollouts")


@pytest.fixture(autouse=True)
def _rough_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def run(tmp_path: Path, settings: Settings) -> Run:
    """Run the harness on pretended sandboxes: agents by name, or whole entries."""

    def go(
        *agents: str | dict[str, Any],
        grace_s: float | None = None,
        listen: MakeListener = quiet,
        **asked: Any,
    ) -> PerfResult:
        scenario = None
        if agents:
            entries = [
                {"task": TASK, "agent": each} if isinstance(each, str) else {"task": TASK, **each}
                for each in agents
            ]
            scenario = tmp_path / "scenario.json"
            scenario.write_text(json.dumps(entries))
        usual = {
            "episodes": max(1, len(agents)),
            "workers": 2,
            "timeout_s": 30.0,
            "output_dir": tmp_path / "perf",
            "sandbox": "fake",
            "strict_spec": True,
            "scenario": scenario,
            "host_root": True,
        }
        return run_perf(
            PerfRequest(**{**usual, **asked}), Resources(settings), grace_s=grace_s, listen=listen
        )

    return go


def _document(result: PerfResult, kind: str) -> dict[str, Any]:
    path = next(path for path in result.files if path.name.startswith(f"perf-{kind}-"))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture
def document() -> Callable[[PerfResult, str], dict[str, Any]]:
    return _document


@pytest.fixture
def rows() -> Callable[[PerfResult], list[dict[str, Any]]]:
    return lambda result: _document(result, "series")["episodes"]

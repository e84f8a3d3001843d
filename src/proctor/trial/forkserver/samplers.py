"""The instruments that look at a measured process from its lane, each at its own pace."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.instruments.base import Sampler, create
from proctor.model.spec import InstrumentSpec
from proctor.trial.point.failure import message_of


class Samplers:
    """All of one trial's. One that fails is named in the summary; the trial goes on."""

    def __init__(self, asked: Sequence[Mapping[str, Any]], folder: str, pid: int) -> None:
        self._all: dict[str, Sampler] = {}
        self._due: dict[str, float] = {}
        self._pid = pid
        self._errors: dict[str, str] = {}
        for each in asked:
            name = each["name"]
            instrument = self._try(name, create, InstrumentSpec(**each))
            if isinstance(instrument, Sampler):
                instrument.open(Path(folder, name))
                self._all[name] = instrument
                self._due[name] = time.monotonic()
        self.look()

    def wait_s(self) -> float:
        """Time until the next look."""
        return max(0.0, min(self._due.values()) - time.monotonic()) if self._due else float("inf")

    def look(self) -> None:
        """Let each that is due look once."""
        for name, sampler in self._all.items():
            now = time.monotonic()
            if self._due[name] <= now:
                self._due[name] = now + sampler.interval_s
                self._try(name, sampler.sample, self._pid)

    def close(self) -> dict[str, Any]:
        """Summaries by name, and why any of them failed."""
        found: dict[str, Any] = {}
        for name, sampler in self._all.items():
            summary = self._try(name, sampler.close)
            if summary is not None:
                found[name] = {"summary": dict(summary)}
        return found | {name: {"error": error} for name, error in self._errors.items()}

    def _try(self, name: str, action: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except Exception as error:  # noqa: BLE001 - a sampler may be foreign code; its failure is recorded
            self._errors[name] = f"{type(error).__name__}: {message_of(error)}"
        return None

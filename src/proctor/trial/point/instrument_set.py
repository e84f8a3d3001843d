"""The instruments of one pass, as one. One that fails is dropped and named; the measurement goes on."""

from __future__ import annotations

from proctor.errors import ProctorError
from proctor.trial.point.failure import message_of
from proctor.trial.point.values import Checker, RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from proctor.instruments.base import Instrument


class InstrumentSet:
    """Starts in the order of the spec and stops in the reverse; the last to start disturbs the least."""

    def __init__(self, asked: Sequence[Mapping[str, Any]], folder: str) -> None:
        self._asked = asked
        self._folder = folder
        self._inside: list[tuple[str, Instrument]] = []
        self._entered: list[tuple[str, Instrument]] = []
        self._errors: dict[str, str] = {}
        self.context: Any = None
        """What the experiment is given, for instruments that take it too."""

    def open(self) -> None:
        """Make those that work inside the measured process; samplers are the lane's."""
        if not self._asked:
            return
        from pathlib import Path

        from proctor.instruments.base import Sampler, create
        from proctor.model.spec import InstrumentSpec

        for each in self._asked:
            name = each["name"]
            instrument = self._try(name, create, InstrumentSpec(**each))
            if instrument is None or isinstance(instrument, Sampler):
                continue
            if hasattr(instrument, "context"):
                instrument.context = self.context
            self._try(name, instrument.open, Path(self._folder, name))
            if name not in self._errors:
                self._inside.append((name, instrument))

    def enter(self) -> None:
        """Just before the timer."""
        for name, instrument in self._inside:
            if name not in self._errors:
                self._entered.append((name, instrument))
                self._try(name, instrument.__enter__)

    def exit(self) -> None:
        """Just after the timer; safe to call when some were never entered."""
        for name, instrument in reversed(self._entered):
            if name not in self._errors:
                self._try(name, instrument.__exit__, None, None, None)
        self._entered.clear()

    def metrics(self) -> dict[str, float]:
        """Numbers of the last iteration, each under its instrument's name."""
        found: dict[str, float] = {}
        for name, instrument in self._inside:
            if name not in self._errors:
                given = self._try(name, _plain, instrument.metrics)
                found |= {f"{name}.{metric}": value for metric, value in (given or {}).items()}
        return found

    def close(self) -> dict[str, Any]:
        """Summaries by name, and why any of them failed."""
        found: dict[str, Any] = {}
        for name, instrument in self._inside:
            if name not in self._errors:
                summary = self._try(name, _plain, instrument.close)
                found[name] = {"summary": summary or {}}
        for name, error in self._errors.items():
            found[name] = {"error": error}
        self._inside.clear()
        return found

    def _try(self, name: str, action: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except (ProctorError, RefusedError) as error:
            self._errors[name] = message_of(error)
        except BaseException as error:  # noqa: BLE001 - an instrument is foreign code; the trial goes on
            self._errors[name] = f"{type(error).__name__}: {message_of(error)}"
        return None


def _plain(give: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """What an instrument reports is checked like what an experiment returns."""
    return Checker().plain(give())

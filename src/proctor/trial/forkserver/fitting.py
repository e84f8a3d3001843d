"""Fit a point's parameters to its experiment, in the lane: no measured process needs what checks them."""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Any

from proctor.experiments.describe import fitted
from proctor.experiments.schema import own_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proctor.experiments.base import Registered


class Fitting:
    """Turns requests into orders that a child carries out without another look at the parameters."""

    def __init__(self, registered: Registered) -> None:
        self._registered = registered
        self._defaults = {each.name: each.default for each in own_arguments(registered.cls.__init__)}

    def order(self, request: Mapping[str, Any]) -> bytes:
        """The request with fitted arguments, as bytes. What does not fit, the child finds out and reports."""
        try:
            values, positional, named = fitted(self._registered, request["params"])
            # Not every default can be sent, and none has to be: the constructor has them.
            named = {name: value for name, value in named.items() if not self._is_default(name, value)}
            return marshal.dumps({**request, "fitted": (values, positional, named)})
        except Exception:  # noqa: BLE001 - raised again in the child, where it is recorded
            return marshal.dumps({**request, "fitted": None})

    def _is_default(self, name: str, value: Any) -> bool:
        return name in self._defaults and value is self._defaults[name]

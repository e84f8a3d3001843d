"""Shares and times as people write them in options."""

from __future__ import annotations

from typing import Any

import click


class Share(click.ParamType[float]):
    """A fraction, written as 5%, 5pp or 0.05; above 0 and below `limit`, or with `zero` from 0 on."""

    name = "percent"

    def __init__(self, limit: float = 1.0, *, zero: bool = False) -> None:
        self.limit, self.zero = limit, zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The fraction."""
        if isinstance(value, float):
            return value
        text = str(value).strip().lower().replace("pp", "%")
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not (0 < share < self.limit or (self.zero and share == 0)):
            self.fail(f"'{value}' is not a share such as 5% or 0.05", param, ctx)
        return share


class Duration(click.ParamType[float]):
    """Seconds, written as 90, 90s, 1.5m or 1h."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """More than none."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        factor = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
        try:
            seconds = float(text[:-1] if factor else text) * (factor or 1)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < float("inf"):
            self.fail(f"'{value}' is not a time such as 90s or 1.5m", param, ctx)
        return seconds

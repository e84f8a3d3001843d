"""The resources of a process, for tests that are one: what they open is closed after the test."""

from __future__ import annotations

import os
from collections.abc import Mapping

from proctor.runs import process_resources
from proctor.settings import Settings

_MADE: list[process_resources.Resources] = []


class Resources(process_resources.Resources):
    """As those of a process."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str] = os.environ, *, create: bool = True
    ) -> None:
        super().__init__(settings, environ, create=create)
        _MADE.append(self)


def close_all() -> None:
    """Close those of the test that has ended."""
    while _MADE:
        _MADE.pop().close()

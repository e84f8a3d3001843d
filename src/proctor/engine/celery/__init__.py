"""Runs on many machines: Celery carries hints that there is work, and the store decides about the work.

`celery -A proctor.engine.celery inspect ping` and Flower find the app here, with the broker of the settings.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """The app, made when it is asked for: importing this package reads no settings."""
    if name != "app":
        raise AttributeError(name)
    from proctor.engine.celery.app import make_app
    from proctor.settings import load_settings

    return make_app(load_settings().broker)

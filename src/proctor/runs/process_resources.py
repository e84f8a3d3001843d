"""What a process opens once and hands down to its runs: stores, blobs, broker, back ends of sandboxes.

Whoever is the process makes it and closes it: a command that executes, `proctor.run`, a server, its engine, a
worker. Nothing is opened before it is used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Self

from proctor.runs.backends import SharedBackends
from proctor.settings import Settings
from proctor.store.blobs import Blobs, blobs_of
from proctor.store.open import StorePool

if TYPE_CHECKING:
    from proctor.engine.celery.publisher import Broker


class _Opened:
    """What all runs of a process share, whatever their keys are."""

    def __init__(self, settings: Settings, *, create: bool) -> None:
        self.settings = settings
        self.stores = StorePool(settings.store_url, create=create)
        self.backends = SharedBackends()
        self.lock = threading.Lock()
        self.blobs: Blobs | None = None
        self.broker: Broker | None = None


class Resources:
    """The settings and keys by which runs are made and executed, and what their process has opened."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str] = os.environ, *, create: bool = True
    ) -> None:
        """`environ`: where keys and other secrets are looked up. `create`: as for `open_store`."""
        self.settings = settings
        self.environ = environ
        self._opened = _Opened(settings, create=create)

    def for_project(self, settings: Settings, environ: Mapping[str, str]) -> Resources:
        """The same with the settings and keys of a project, or of one run."""
        resources = copy(self)
        resources.settings, resources.environ = settings, environ
        return resources

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def stores(self) -> StorePool:
        """The stores, for the length of a block each."""
        return self._opened.stores

    @property
    def backends(self) -> SharedBackends:
        """The back ends that runs share where several are executed at once; who has the loop closes them."""
        return self._opened.backends

    @property
    def blobs(self) -> Blobs:
        """The blobs: one client and one cache."""
        opened = self._opened
        with opened.lock:
            opened.blobs = opened.blobs or blobs_of(opened.settings)
            return opened.blobs

    @property
    def broker(self) -> Broker:
        """The broker: one Celery app. UsageError where none is set."""
        from proctor.engine.celery.publisher import Broker

        opened = self._opened
        with opened.lock:
            opened.broker = opened.broker or Broker(opened.settings.broker)
            return opened.broker

    def close(self) -> None:
        """Let go of all that is open; what is used afterwards is opened for that use, as after a fork."""
        opened = self._opened
        with opened.lock:
            opened.blobs = opened.broker = None
        opened.stores.close()

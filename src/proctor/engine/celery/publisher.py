"""Publish hints that trials wait, and ask the broker how many of them it still has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proctor.engine.celery.app import PRIORITIES, TASK, Offer, make_app, nobody_executes
from proctor.engine.celery.refusals import why
from proctor.errors import StoreError


class BrokerError(StoreError):
    """The broker does not answer, or refuses; nothing is lost by that."""


class Broker:
    """The broker of a process: one Celery app, for all who publish and for the one who listens."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.offer: Offer = nobody_executes
        self.app = make_app(url, lambda ticket: self.offer(ticket))  # noqa: PLW0108 - it is set later


class Publisher:
    """A connection to a broker, made when it is needed and again after it broke. For one thread."""

    def __init__(self, broker: Broker) -> None:
        self._app = broker.app
        self._url = broker.url
        self._connection: Any = None
        self._channel: Any = None

    def waiting(self, queue: str) -> int:
        """How many messages of a queue nobody has taken."""

        def ask() -> int:
            bound = self._queue(queue)(self._opened())
            bound.declare()
            return int(bound.queue_declare().message_count)

        return int(self._guarded(ask))

    def publish(self, queue: str, trials: Sequence[str], priority: int = 0) -> None:
        """One message for each trial, with its id and nothing else."""

        def send() -> None:
            with self._app.amqp.Producer(self._opened()) as producer:
                for trial in trials:
                    self._app.send_task(
                        TASK,
                        kwargs={"trial": trial},
                        queue=self._queue(queue),
                        priority=max(0, min(PRIORITIES - 1, priority)),
                        producer=producer,
                        ignore_result=True,
                    )

        self._guarded(send)

    def close(self) -> None:
        """Let go of the broker."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection:
            connection.release()

    def _queue(self, name: str) -> Any:
        return self._app.amqp.queues[name]

    def _opened(self) -> Any:
        if self._channel is None:
            self._connection = self._app.connection_for_write()
            self._connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
            self._channel = self._connection.default_channel
        return self._channel

    def _guarded(self, function: Any) -> Any:
        try:
            return function()
        except Exception as error:  # noqa: BLE001 - it is raised again as one kind
            # Every transport has errors of its own, and some of theirs show the address with its password.
            self._drop()
            raise BrokerError(f"the broker {why(error, self._url)}") from None

    def _drop(self) -> None:
        try:
            self.close()
        except Exception:  # noqa: BLE001 - it is broken already, and a new one comes
            self._connection = self._channel = None

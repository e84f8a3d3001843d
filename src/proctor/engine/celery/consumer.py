"""Listen to the broker beside a worker's event loop: every message is a ticket for one trial.

Celery's worker runs in threads of this process, so that its own tools see it; trials run in the event loop,
and a thread of Celery's only waits for the end of its trial.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from proctor.engine.celery.app import queue_of
from proctor.engine.celery.publisher import Broker, BrokerError, Publisher
from proctor.engine.celery.refusals import why

_log = logging.getLogger("proctor.broker")
_PAUSE_S = 5.0
_JOIN_S = 15.0


class Listening:
    """A Celery worker in threads, from `start` to `stop`."""

    def __init__(
        self,
        broker: Broker,
        offer: Callable[[Future[bool]], None],
        *,
        parallel: int,
        backends: Sequence[str],
        name: str,
    ) -> None:
        """`offer` is called in the event loop."""
        self._broker = broker
        self._offer = offer
        self._parallel = parallel
        self._queues = [queue_of(""), *(queue_of(each) for each in backends)]
        host, pid, *_ = name.split(":")
        self.hostname = f"proctor-{pid}@{host}"
        """The name by which Celery's tools know this worker."""
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._said = ""
        self._given: set[Future[bool]] = set()
        """Tickets that nobody has answered: a thread of Celery's waits for each."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen; a broker that is away is waited for."""

        def offer(ticket: Future[bool]) -> None:
            self._given.add(ticket)
            ticket.add_done_callback(self._given.discard)
            if self._ending.is_set():
                self._answer()
            else:
                loop.call_soon_threadsafe(self._offer, ticket)

        self._broker.offer = offer
        app = self._broker.app
        app.set_default()  # Celery's threads ask for the app of this process
        _ = app.backend  # made once: to find it Celery looks through all installed packages
        self._thread = threading.Thread(
            target=self._keep, args=(app, loop), name="proctor-broker", daemon=True
        )
        self._thread.start()

    def _keep(self, app: Any, loop: asyncio.AbstractEventLoop) -> None:
        from celery.worker import WorkController

        def failed(error: BaseException | None) -> None:
            """Celery gives up, and waits for its threads, which wait for trials: let them go on at once."""
            if isinstance(error, Exception) and not self._ending.is_set():
                self._say(f"the broker {why(error, self._broker.url)}")
                loop.call_soon_threadsafe(self._answer)

        class Controller(WorkController):  # type: ignore[misc]
            def stop(self, *args: Any, **more: Any) -> None:
                failed(sys.exception())
                super().stop(*args, **more)

        while not self._ending.is_set():
            if self._is_there():
                controller = Controller(
                    app=app,
                    hostname=self.hostname,
                    pool="threads",
                    concurrency=self._parallel,
                    queues=self._queues,
                    without_gossip=True,
                    without_mingle=True,
                    loglevel=logging.WARNING,
                )
                try:
                    controller.start()
                except SystemExit:
                    pass
                except Exception as error:  # noqa: BLE001 - the worker goes on without the broker, and says so
                    failed(error)
            self._ending.wait(_PAUSE_S)

    def _is_there(self) -> bool:
        """Whether the broker lets us listen to our queues. Celery would try for ever, and tell nobody why."""
        publisher = Publisher(self._broker)
        try:
            for queue in self._queues:
                publisher.waiting(queue)
        except BrokerError as error:
            self._say(str(error))
            return False
        finally:
            publisher.close()
        self._said = ""
        return True

    def _say(self, text: str) -> None:
        if text != self._said:
            _log.warning("%s; it is tried again, and trials are found in the store meanwhile", text)
        self._said = text

    def release(self) -> None:
        """Take no more messages; what waits goes back to the broker."""
        from celery.worker import state

        self._ending.set()
        state.should_stop = 0

    def stop(self) -> None:
        """Let go of the broker; every ticket has been answered."""
        from celery.worker import state

        self.release()
        self._answer()
        if self._thread:
            self._thread.join(_JOIN_S)
            self._answer()
            if self._thread.is_alive():  # it ends with this process, and takes nothing until then
                _log.warning("Celery did not end within %g s", _JOIN_S)
                return
        state.should_stop = None

    def _answer(self) -> None:
        """Nobody takes a trial any more: whoever still waits for one goes on."""
        for ticket in list(self._given):
            with suppress(InvalidStateError):
                ticket.set_result(False)

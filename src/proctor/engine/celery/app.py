"""The Celery app: its queues, its one task, and settings that hold for work that lasts hours.

A message is acknowledged when its trial has ended, or has lasted so long that a broker might take it back; it
is never redelivered for being slow: about lost work the store's leases decide. Nothing but the id of a trial
is in a message, and nothing comes back.
"""

from __future__ import annotations

import ssl
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from proctor.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from celery import Celery

TASK = "proctor.trial"
QUEUE = "proctor"
SCHEMES = ("redis", "rediss", "amqp", "amqps")
PRIORITIES = 10
_ENCRYPTED = ("rediss", "amqps")
_CHECKS = ("required", "none")
_FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
_LONGEST_S = 30 * 86_400
"""Above the longest trial: a broker that gave a message to a second worker would only cost time."""
_TIMEOUT_S = 5.0
HOLD_S = 240.0
"""How long a message of RabbitMQ is held. Its `consumer_timeout` (30 minutes; it advises 5 at least) closes
the channel of who has one for longer."""


class Offer(Protocol):
    """Hands a ticket to the worker of this process; safe from any thread."""

    def __call__(self, ticket: Future[bool]) -> None:
        """One more trial may be taken."""


def queue_of(backend: str) -> str:
    """The queue of trials that need a certain sandbox; those that need none share one."""
    return f"{QUEUE}.{backend.replace(':', '-')}" if backend else QUEUE


def check_broker(broker: str) -> None:
    """UsageError for an address that no broker has; its password is not shown."""
    if urlsplit(broker).scheme not in SCHEMES:
        raise UsageError(
            "setting 'broker' is not the address of a message broker: it begins with redis://, rediss://, "
            "amqp:// or amqps://, such as redis://localhost:6379/0"
        )


def nobody_executes(ticket: Future[bool]) -> None:
    """What an app offers trials to that is there to publish and inspect."""
    del ticket
    raise UsageError("trials are executed by 'proctor worker', which starts Celery itself")


def make_app(broker: str, offer: Offer = nobody_executes) -> Celery:
    """The app for a broker; its task offers a ticket for one trial."""
    if not broker:
        raise UsageError("no broker is set: set PROCTOR_BROKER to redis://… or amqp://…")
    check_broker(broker)
    try:
        from celery import Celery
    except ImportError:
        raise MissingExtraError("celery", "celery", "runs on many machines") from None
    address, encryption = _encryption(broker)
    app = Celery("proctor", broker=address, set_as_current=False)
    app.conf.update(_settings(broker) | encryption)
    hold_s = None if _is_redis(broker) else HOLD_S

    def attempt(trial: str) -> None:
        """Let the worker take one trial, the hinted one if it is the best, and wait for its end."""
        del trial  # which one it is the store decides
        ticket: Future[bool] = Future()
        offer(ticket)
        with suppress(TimeoutError):  # the trial goes on, and its place needs no message
            ticket.result(hold_s)

    app.task(name=TASK, ignore_result=True, acks_late=True, shared=False)(attempt)
    return app


def _is_redis(broker: str) -> bool:
    return urlsplit(broker).scheme.startswith("redis")


def _encryption(broker: str) -> tuple[str, dict[str, Any]]:
    """The address without its `ssl_` options, and Celery's settings by them.

    Celery itself would check no certificate of a broker, and give the password to whoever answers.
    """
    parts = urlsplit(broker)
    if parts.scheme not in _ENCRYPTED:
        return broker, {}
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    options = {name: query.pop(name) for name in list(query) if name.startswith("ssl_")}
    asked = options.pop("ssl_cert_reqs", "required").lower().removeprefix("cert_")
    if asked not in _CHECKS or options.keys() - _FILES:
        raise UsageError(
            "setting 'broker': of TLS it may say ssl_cert_reqs=required or none, and the files "
            f"{', '.join(sorted(_FILES))}"
        )
    checked = asked == "required"
    found: dict[str, Any] = {**options, "ssl_cert_reqs": ssl.CERT_REQUIRED if checked else ssl.CERT_NONE}
    if parts.scheme == "rediss":
        found["ssl_check_hostname"] = checked
    else:
        found = {name.removeprefix("ssl_"): value for name, value in found.items()}
        found |= {"server_hostname": parts.hostname} if checked else {}
    return parts._replace(query=urlencode(query)).geturl(), {"broker_use_ssl": found}


def _settings(broker: str) -> dict[str, Any]:
    redis = _is_redis(broker)
    transport: dict[str, Any] = {"visibility_timeout": _LONGEST_S} if redis else {"confirm_publish": True}
    if redis:
        transport |= {
            "queue_order_strategy": "priority",
            "priority_steps": list(range(PRIORITIES)),
            "sep": ":",
            "socket_connect_timeout": _TIMEOUT_S,
            "socket_timeout": 30.0,
            "socket_keepalive": True,
        }
    return {
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "result_backend": None,
        "result_backend_thread_safe": True,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_default_queue": QUEUE,
        "task_queue_max_priority": PRIORITIES - 1,
        "task_default_priority": 0,
        "broker_transport_options": transport,
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_connection_timeout": _TIMEOUT_S,
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "enable_utc": True,
    }

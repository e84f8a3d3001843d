"""A broker that refuses, or takes its messages back: workers go on, hear again, and say why."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager

import pytest
from redis import Redis
from tests.brokers import PASSWORD, RabbitMQ, redis_server

from proctor.engine.celery.app import make_app
from proctor.engine.celery.consumer import Listening
from proctor.engine.celery.publisher import Broker, BrokerError, Publisher
from proctor.engine.celery.refusals import why
from proctor.errors import UsageError

pytestmark = pytest.mark.anyio
DEADLINE_S = 60.0
TIMED_OUT = "timed out waiting for delivery acknowledgement"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A node that takes a message back after four seconds; RabbitMQ's own default is half an hour."""
    node = RabbitMQ(
        tmp_path_factory.mktemp("impatient"),
        password=PASSWORD,
        options="{consumer_timeout, 4000}, {channel_tick_interval, 200}",
    )
    yield node
    node.close()


async def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def worker_of(url: str) -> AsyncIterator[tuple[list[Future[bool]], Callable[[], None]]]:
    """The tickets that a listening worker has got and that nobody answers, and how to publish one more."""
    publisher, came = Publisher(Broker(url)), list[Future[bool]]()
    listening = Listening(Broker(url), came.append, parallel=4, backends=(), name="host:1:2:3:4")
    listening.start(asyncio.get_running_loop())
    try:
        yield came, lambda: publisher.publish("proctor", ["r/1"])
    finally:
        await asyncio.to_thread(listening.stop)
        publisher.close()


async def one_more(came: list[Future[bool]], publish: Callable[[], None]) -> None:
    seen = len(came)
    publish()
    await until(lambda: len(came) > seen)


@pytest.mark.needs("rabbitmq")
@pytest.mark.xdist_group("rabbitmq")
async def test_a_message_is_given_back_before_rabbitmq_takes_it_and_its_trial_goes_on(impatient, monkeypatch):
    monkeypatch.setattr("proctor.engine.celery.app.HOLD_S", 1.0)
    async with worker_of(impatient.url) as (came, publish):
        before, since = impatient.said().count(TIMED_OUT), time.monotonic()
        while time.monotonic() - since < 10:  # more than twice what this node allows
            await one_more(came, publish)
        assert not came[0].done(), "the trial of the first is under way"
        assert impatient.said().count(TIMED_OUT) == before


@pytest.mark.needs("rabbitmq")
@pytest.mark.xdist_group("rabbitmq")
async def test_a_worker_whose_message_was_taken_back_hears_again_while_its_trial_runs(impatient, caplog):
    async with worker_of(impatient.url) as (came, publish):
        publish()
        await until(lambda: came)
        await until(lambda: "delivery acknowledgement on channel" in caplog.text)
        await one_more(came, publish)
    said = next(each for each in caplog.records if each.name == "proctor.broker")
    assert said.levelno == logging.WARNING
    assert "the broker refuses: PRECONDITION_FAILED - delivery acknowledgement" in said.getMessage()
    assert "trials are found in the store meanwhile" in said.getMessage()


@pytest.mark.needs("redis")
@pytest.mark.parametrize(
    ("login", "said"),
    [
        (":wrong", "refuses: invalid username-password pair or user is disabled"),
        ("", "refuses: Authentication required"),
        ("reader:may-read-only", "refuses: .*no permissions to run"),
    ],
)
def test_what_redis_refuses_is_said_in_its_own_words(tmp_path, login, said):
    with redis_server(tmp_path, password=PASSWORD) as url:
        with Redis.from_url(url) as client:
            client.execute_command(
                "ACL", "SETUSER", "reader", "on", ">may-read-only", "~*", "+@read", "+ping"
            )
        publisher = Publisher(Broker(url.replace(f":{PASSWORD}@", f"{login}@" if login else "")))
        with pytest.raises(BrokerError, match=f"^the broker {said}") as caught:
            publisher.waiting("proctor")
    assert "may-read-only" not in str(caught.value)


@pytest.mark.needs("rabbitmq")
@pytest.mark.xdist_group("rabbitmq")
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (PASSWORD, "wrong", "refuses: ACCESS_REFUSED - Login was refused"),
        ("//", "/nowhere", "refuses: NOT_ALLOWED - vhost nowhere not found"),
        ("amqp://", "amqps://", "cannot be reached: .*SSL"),
    ],
)
def test_what_rabbitmq_refuses_is_said_in_its_own_words(rabbitmq_node, before, after, said):
    head, mark, tail = rabbitmq_node.rpartition(before)
    assert mark
    with pytest.raises(BrokerError, match=f"^the broker {said}") as caught:
        Publisher(Broker(f"{head}{after}{tail}")).waiting("proctor")
    assert PASSWORD not in str(caught.value)


@pytest.mark.needs("redis")
async def test_a_worker_says_why_its_broker_refuses(tmp_path, caplog):
    with redis_server(tmp_path, password=PASSWORD) as url:
        async with worker_of(url.replace(PASSWORD, "wrong")):
            await until(lambda: "the broker refuses: invalid username-password pair" in caplog.text)


def test_an_error_that_quotes_the_address_is_said_without_the_password():
    broker = "amqp://u:p%40ssword@h//"
    assert (
        why(OSError(1, "amqp://u:p@ssword@h is away"), broker) == "cannot be reached: amqp://u:***@h is away"
    )
    assert why(ValueError("p@ssword"), broker) == "does not answer (ValueError)"


@pytest.mark.needs("redis")
def test_a_password_goes_to_a_broker_with_a_trusted_certificate_only(tmp_path, with_tls):
    certificate, _ = with_tls
    with redis_server(tmp_path, password=PASSWORD, tls=certificate.parent) as url:
        with pytest.raises(BrokerError, match=r"^the broker cannot be reached: .*certificate verify failed"):
            Publisher(Broker(url)).waiting("proctor")
        for trusted in (f"ssl_ca_certs={certificate}", "ssl_cert_reqs=none"):
            publisher = Publisher(Broker(f"{url}?{trusted}"))
            publisher.publish("proctor", ["r/1"])
            publisher.close()


def test_options_of_tls_are_celerys_and_unknown_ones_are_refused():
    app = make_app("amqps://u:p@broker.example/team?ssl_ca_certs=/ca.pem&heartbeat=30")
    assert app.conf.broker_url == "amqps://u:p@broker.example/team?heartbeat=30"
    assert app.conf.broker_use_ssl == {
        "ca_certs": "/ca.pem", "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": "broker.example"
    }  # fmt: skip
    assert make_app("amqps://h?ssl_cert_reqs=none").conf.broker_use_ssl == {"cert_reqs": ssl.CERT_NONE}
    for wrong in ("ssl_cert_reqs=perhaps", "ssl_verify=1"):
        with pytest.raises(UsageError, match="of TLS it may say"):
            make_app(f"rediss://h:1/0?{wrong}")

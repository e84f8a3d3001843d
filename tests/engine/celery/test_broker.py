"""What is in the broker: hints and nothing else, as many as places are free, again after they were lost."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from redis import Redis
from tests.brokers import PASSWORD, redis_server

from proctor.engine.celery.app import check_broker, make_app, queue_of
from proctor.engine.celery.consumer import Listening
from proctor.engine.celery.publisher import Broker, BrokerError, Publisher
from proctor.errors import UsageError
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.runs.dispatch import Dispatcher
from proctor.store.fleet import WorkerInfo
from proctor.store.open import open_store

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis"), password=PASSWORD) as url:
        yield url


@pytest.fixture
def emptied(redis: str) -> str:
    asked(redis, "FLUSHALL")
    return redis


def asked(url: str, *command: str) -> str:
    with Redis.from_url(url, decode_responses=True) as client:
        found = client.execute_command(*command)
        return str(found[0] if isinstance(found, list) else found)


@pytest.mark.needs("redis")
def test_a_message_has_the_id_of_a_trial_and_nothing_else(emptied):
    publisher = Publisher(Broker(emptied))
    publisher.publish(queue_of("podman"), ["r1/7"])
    publisher.close()
    message = json.loads(asked(emptied, "LRANGE", "proctor.podman", "0", "0"))
    args, given, _ = json.loads(base64.b64decode(message["body"]))
    assert (args, given) == ([], {"trial": "r1/7"})
    assert PASSWORD not in json.dumps(message)
    assert message["content-type"] == "application/json"


@pytest.mark.needs("redis")
def test_a_wiped_broker_is_filled_again_from_the_store(emptied, tmp_path, make_run):
    with open_store(str(tmp_path / "store.db")) as store:
        make_run(store, 9)
        told = Dispatcher(store, "r", Broker(emptied))
        assert told.top_up()
        assert asked(emptied, "LLEN", "proctor") == "0", "nobody is there to be woken"
        store.fleet.seen(WorkerInfo(name="w", host="h", version="1", parallel=5))
        told.top_up()
        assert asked(emptied, "LLEN", "proctor") == "5", "as many as places"
        assert not told.top_up(), "nothing moved, and nothing is sent twice"
        assert asked(emptied, "LLEN", "proctor") == "5"
        asked(emptied, "FLUSHALL")
        store.take("r", worker="w", lease_s=30)
        assert told.top_up()
        assert asked(emptied, "LLEN", "proctor") == "4", "one place is taken"


@pytest.fixture
def make_run():
    from proctor.model.plan import Plan, PlannedTrial, trial_key

    def make(store, size: int) -> None:
        trials = tuple(
            PlannedTrial(
                key=trial_key(subject_digest="d", params={"n": n}),
                index=n,
                kind="task",
                subject="s",
                subject_digest="d",
                body=0,
                path="/t",
            )
            for n in range(size)
        )
        info = RunInfo(
            id="r", name="n", kind="task", status=RunStatus.RUNNING, created_at=1.0, seed=0, total=size
        )
        store.create_run(info, Plan(trials=trials))

    return make


def test_a_broker_that_is_away_is_an_error_without_its_password():
    publisher = Publisher(Broker(f"redis://:{PASSWORD}@127.0.0.1:1/0"))
    with pytest.raises(BrokerError) as caught:
        publisher.waiting("proctor")
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("address", ["localhost:6379", f"mysql://u:{PASSWORD}@h/0", "sqs://"])
def test_an_address_that_is_no_broker_is_refused_without_its_password(address):
    with pytest.raises(UsageError, match="not the address of a message broker") as caught:
        check_broker(address)
    assert PASSWORD not in str(caught.value)


def test_threads_share_what_would_keep_results():
    app = make_app("redis://127.0.0.1:1/0")
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: app.backend).result() is app.backend


def test_without_a_broker_there_is_no_app():
    with pytest.raises(UsageError, match="PROCTOR_BROKER"):
        make_app("")


async def answered(url: str) -> tuple[int, int]:
    """How many tickets came for three messages, and what is left in the queue when all are answered."""
    publisher = Publisher(Broker(url))
    await asyncio.to_thread(publisher.waiting, "proctor")
    await asyncio.to_thread(publisher.publish, "proctor", ["r/1", "r/2", "r/3"])
    came: list[Future[bool]] = []
    enough = asyncio.Event()

    def offer(ticket: Future[bool]) -> None:
        came.append(ticket)
        ticket.set_result(False)
        if len(came) == 3:
            enough.set()

    listening = Listening(Broker(url), offer, parallel=2, backends=(), name="host:1:2:3:4")
    listening.start(asyncio.get_running_loop())
    try:
        await asyncio.wait_for(enough.wait(), 60)
    finally:
        await asyncio.to_thread(listening.stop)
    left = await asyncio.to_thread(publisher.waiting, "proctor")
    publisher.close()
    return len(came), left


@pytest.mark.needs("redis")
async def test_every_message_is_a_ticket_on_redis(emptied):
    assert await answered(emptied) == (3, 0)


@pytest.mark.needs("rabbitmq")
@pytest.mark.xdist_group("rabbitmq")
async def test_every_message_is_a_ticket_on_rabbitmq(rabbitmq):
    assert await answered(rabbitmq) == (3, 0)

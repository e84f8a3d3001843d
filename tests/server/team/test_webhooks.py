"""Webhooks: who is told what, how it is proven, and what happens when nobody listens."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
from typing import get_args

import pytest

from proctor.render.ci import MARKER
from proctor.server.engine.judging import COMMENT
from proctor.server.routes.team.webhooks import Event
from proctor.server.team.delivery import PAUSES_S, Deliveries
from proctor.server.team.outside import MOST_BYTES, Outside
from proctor.store.team.webhooks import Webhook

SECRET = "a secret of ours"


@pytest.fixture
def hook(state, store, listener):
    """A webhook to the little server."""

    def make(*events: str, kind: str = "event", path: str = "/told") -> Webhook:
        sealed = state.vault.seal(SECRET)
        made = Webhook("wh_1", "default", "ada", 0.0, kind, listener.url + path, events, sealed, True, 0)
        store.service.webhooks.add(made)
        return made

    return make


def deliver(deliveries: Deliveries, times: int = 1) -> int:
    async def go() -> int:
        return sum([await deliveries.deliver() for _ in range(times)])

    return asyncio.run(go())


def test_what_happens_is_told_once_in_order_and_signed(state, store, hook, listener, submitted):
    before = submitted()
    hook("run.queued", "run.paused")
    run = submitted()
    store.service.queue.want(run, wanted=True, event="run.queued")
    store.service.queue.want(run, wanted=False, event="run.paused")
    store.service.queue.want(run, wanted=False, event="run.failed")
    assert deliver(Deliveries(state), 5) == 2
    bodies = [json.loads(body) for _, _, _, body in listener.got]
    assert [each["event"] for each in bodies] == ["run.queued", "run.paused"]
    assert {each["run"]["id"] for each in bodies} == {run} != {before}
    assert bodies[0]["run"]["url"] == f"https://proctor.example/runs/{run}"
    assert "folder" not in bodies[0]["run"]
    _, _, headers, body = listener.got[0]
    stamp, _, digest = headers["X-Proctor-Signature"].removeprefix("t=").partition(",v1=")
    assert digest == hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert store.service.webhooks.find("wh_1", None).last_status == "HTTP 200"


def test_a_delivery_that_fails_is_tried_again_then_given_up(state, store, hook, listener, submitted):
    hook("run.queued")
    run = submitted()
    store.service.queue.want(run, wanted=True, event="run.queued")
    deliveries = Deliveries(state)
    listener.statuses += [500, 302]
    assert deliver(deliveries, 3) == 0
    assert len(listener.got) == 1, "it waits before the second try"
    clock = state.clock()
    state.clock = lambda: clock + 3600
    assert deliver(deliveries, 1) == 0
    state.clock = lambda: clock + 7200
    assert deliver(deliveries, 1) == 1
    store.service.queue.want(run, wanted=True, event="run.queued")
    listener.statuses += [500] * 20
    for number in range(len(PAUSES_S) + 1):
        state.clock = lambda number=number: clock + 10_000 * (number + 2)
        deliver(deliveries)
    assert "gave up" in store.service.webhooks.find("wh_1", None).last_status
    listener.statuses.clear()
    assert deliver(deliveries) == 0


def test_an_address_that_is_not_the_internets_is_not_reached(state, hook, store, listener, submitted):
    state.resources.settings = type(state.settings)(home=state.settings.home)
    hook("run.queued")
    store.service.queue.want(submitted(), wanted=True, event="run.queued")
    deliver(Deliveries(state))
    assert listener.got == []
    assert "webhook_allow" in store.service.webhooks.find("wh_1", None).last_status
    for url in ("http://localhost:1/", "http://[::1]:1/", "http://169.254.169.254/", "http://0.0.0.0:1/"):
        said = asyncio.run(Outside().send("GET", url))
        assert (said.status, "not an address of the internet" in said.said) == (0, True), said
    for host in ("①②⑦.0.0.1", "127。0。0。1", "127.1", "0x7f.1", "[::ffff:127.0.0.1]"):
        assert asyncio.run(Outside().send("POST", listener.url.replace("127.0.0.1", host), b"x")).status == 0
    assert listener.got == []


def test_a_webhook_that_hangs_keeps_no_other_one_waiting(state, store, listener, submitted):
    """The one that hangs is the first by name, and is sent nothing more until it has answered."""
    released = threading.Event()
    listener.holds["/hangs"] = released
    sealed = state.vault.seal(SECRET)
    for name, path in (("wh_1", "/hangs"), ("wh_2", "/told")):
        made = Webhook(
            name, "default", "ada", 0.0, "event", listener.url + path, ("run.queued",), sealed, True, 0
        )
        store.service.webhooks.add(made)
    run = submitted()
    for _ in range(2):
        store.service.queue.want(run, wanted=True, event="run.queued")

    def told(path: str) -> int:
        return sum(each[1] == path for each in listener.got)

    async def go() -> None:
        deliveries = Deliveries(state)
        rounds = []
        async with asyncio.timeout(8):
            while told("/told") < 2:
                rounds.append(asyncio.create_task(deliveries.deliver()))
                await asyncio.sleep(0.05)
        assert told("/hangs") == 1
        released.set()
        await asyncio.gather(*rounds)

    try:
        asyncio.run(go())
    finally:
        released.set()


def test_of_an_answer_without_end_only_the_beginning_is_read(listener):
    listener.body = b"x" * (3 * MOST_BYTES)
    said = asyncio.run(Outside(("127.0.0.1",)).send("GET", listener.url))
    assert (said.status, len(said.body)) == (200, MOST_BYTES)


def test_a_verdict_becomes_one_comment_that_the_next_one_replaces(state, store, hook, listener, submitted):
    hook("run.judged", kind="comment", path="/repos/o/r/issues/{pr}/comments")
    for text in ("first", "second"):
        run = submitted(tags=("pr:12",))
        folder = state.settings.rollouts_dir / run
        folder.mkdir(parents=True)
        (folder / COMMENT).write_text(f"{MARKER}\n{text}")
        store.set_folder(_at(store, run, str(folder)))
        store.service.queue.tell(run, "run.judged", {"verdict": "pass"})
        assert deliver(Deliveries(state), 2) == 1
    asked = [(method, path.partition("?")[0]) for method, path, _, _ in listener.got]
    place = "/repos/o/r/issues/12/comments"
    assert asked == [
        ("GET", place),
        ("POST", place),
        ("GET", place),
        ("PATCH", "/repos/o/r/issues/comments/1"),
    ]
    assert listener.got[0][2]["Authorization"] == f"Bearer {SECRET}"
    said = json.loads(listener.got[-1][3])["body"]
    assert said.startswith(f"{MARKER}\nsecond")
    assert "https://proctor.example/runs/" in said


def _at(store, run, folder):
    from msgspec.structs import replace

    return replace(store.run(run), folder=folder)


def test_a_run_without_a_number_or_a_verdict_writes_no_comment(state, store, hook, listener, submitted):
    hook("run.judged", kind="comment", path="/repos/o/r/issues/{pr}/comments")
    for tags in ((), ("pr:12",)):
        store.service.queue.tell(submitted(tags=tags), "run.judged", {"verdict": "pass"})
    assert deliver(Deliveries(state), 3) == 2
    assert listener.got == []
    assert "no verdict" in store.service.webhooks.find("wh_1", None).last_status


def test_webhooks_over_the_api(one_server, listener):
    client = one_server.client
    body = {"url": f"{listener.url}/told", "events": get_args(Event)}
    made = client.post("/api/webhooks", json=body)
    assert made.status_code == 201, made.text
    assert made.json()["secret"].startswith("ws_")
    where = made.headers["location"]
    listed = client.get("/api/webhooks")
    assert "secret" not in listed.json()["items"][0]
    head = {"X-Proctor-Request": "1"}
    tested = client.post(f"{where}/test", headers=head).json()
    assert (tested["delivered"], listener.got) == (False, [])
    assert client.patch(where, json={"enabled": False}).json()["enabled"] is False
    assert client.delete(where, headers=head).status_code == 204
    assert client.delete(where, headers=head).status_code == 404
    for wrong in ({"url": "ftp://x"}, {"url": "http://u:p@x"}, {"url": "http://x", "kind": "comment"}):
        assert client.post("/api/webhooks", json=wrong).status_code in {400, 422}

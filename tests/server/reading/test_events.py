from __future__ import annotations

import json

from tests.server.reading.conftest import FIRST, LIVE, OTHERS

from proctor.store import steps


def write(reading, run, *kinds):
    with reading.store as store, store._db.write() as tx:
        for kind in kinds:
            steps.write_event(tx, run, kind, {"n": kinds.index(kind)})


def told(answer):
    """The events of a stream, one by one."""
    for line in answer.iter_lines():
        if line.startswith("data:"):
            yield json.loads(line[5:])


def test_a_stream_tells_what_happens_from_now_on(reading):
    with reading.ours.stream("GET", "/api/events") as answer:
        events = told(answer)
        opened = next(events)
        assert opened["kind"] == "stream.open"
        write(reading, OTHERS, "run.secret")
        write(reading, LIVE, "run.one", "run.two")
        found = [next(events), next(events)]
    assert [(each["kind"], each["run"]) for each in found] == [("run.one", LIVE), ("run.two", LIVE)]
    assert found[0]["id"] > opened["id"]
    assert found[1]["data"] == {"n": 1}


def test_a_stream_resumes_after_the_last_event_that_was_seen(reading):
    write(reading, LIVE, "run.first", "run.second")
    with reading.store as store:
        last = store.last_event(LIVE)
    with reading.ours.stream("GET", "/api/events", headers={"Last-Event-ID": str(last - 1)}) as answer:
        events = told(answer)
        next(events)
        assert next(events)["kind"] == "run.second"
        write(reading, LIVE, "run.third")
        assert next(events)["kind"] == "run.third"


def test_a_stream_of_one_run_tells_of_no_other(reading):
    with reading.ours.stream("GET", "/api/events", params={"run": FIRST, "after": 0}) as answer:
        events = told(answer)
        next(events)
        assert next(events)["kind"] == "run.imported"
        write(reading, LIVE, "run.else")
        write(reading, FIRST, "run.mine")
        assert next(events)["kind"] == "run.mine"


def test_an_id_that_is_no_number_of_an_event_is_none(reading):
    for given in ("9" * 5000, "-1", "first"):
        with reading.ours.stream("GET", "/api/events", headers={"Last-Event-ID": given}) as answer:
            assert answer.status_code == 200
            assert next(told(answer))["kind"] == "stream.open"

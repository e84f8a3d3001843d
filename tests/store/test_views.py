"""What a server reads, on both databases: filters, orders, work, money, events, and a team's tables."""

from __future__ import annotations

import threading

import pytest
from tests.taking import take

from proctor.store import steps
from proctor.store.spending import Reserve, Scope, Settle
from proctor.store.team.schedules import Schedule
from proctor.store.team.webhooks import Webhook

RUN, LATER = "20260101-aaaa", "20260102-bbbb"
EVER = 9e15


@pytest.fixture
def filled(store, clock, make):
    """Two runs: of the first one trial is done and one is held, of the second all wait."""
    clock.now = 1_760_000_000.0
    make.run(store, RUN, name="Nightly_50%", kind="task")
    make.run(store, LATER, name="nightlyx500", created_at=200.0)
    done, _ = take(store, RUN, worker="w", lease_s=30, limit=2)
    store.finish(done, make.record(done, reward=0.5), counts=True)
    return store


def call(store, name: str = "c1", nano_usd: int | None = 2_000) -> None:
    wanted = Reserve(
        id=name, run_id=RUN, trial=0, attempt=1, model="m", scopes=(Scope("run", RUN),), tokens=10,
        nano_usd=5_000,
    )  # fmt: skip
    (reserved,) = store.spending.apply([wanted])
    tokens = {"prompt": 3, "completion": 4, "cached": 1, "cache_write": 0, "reasoning": 0}
    store.spending.apply([Settle(reserve=wanted, day=reserved.day, tokens=tokens, nano_usd=nano_usd)])


def test_runs_are_found_by_parts_of_names_in_any_case(filled):
    def found(**only: str) -> list[str]:
        return [each.id for each in filled.views.runs.listed(limit=10, **only)]

    assert found() == [LATER, RUN]
    assert found(name="nightly_50%") == [RUN]
    assert found(name="NIGHT*") == [LATER, RUN]
    assert found(before=LATER) == [RUN]
    assert found(until=RUN) == [RUN]
    assert found(project="others") == []
    assert [each["name"] for each in filled.views.runs.series(project="default", limit=10)] == [
        "nightlyx500",
        "Nightly_50%",
    ]


def test_a_row_of_a_run_has_counts_money_and_what_is_held(filled):
    call(filled)
    call(filled, "c2", None)
    runs = filled.views.runs
    listed = runs.listed(limit=10, id=RUN)
    assert runs.infos(listed)[0].counts == {"passed": 1}
    assert runs.held(listed) == {RUN: 1}
    spent = runs.spent(listed)[RUN]
    assert (spent.requests, spent.tokens, spent.cost_usd, spent.unknown_cost) == (2, 14, 2e-6, 1)
    assert listed[0].last_event == filled.last_event(RUN)


def test_trials_without_a_value_come_last_in_either_order(filled):
    trials = filled.views.trials
    assert trials.ordered(RUN, sort="reward", only={}, outcomes=[]) == [0, 1, 2]
    assert trials.ordered(RUN, sort="-reward", only={}, outcomes=[]) == [0, 1, 2]
    assert trials.ordered(RUN, sort="-index", only={"q": "NOOP"}, outcomes=[]) == [2, 1, 0]
    assert trials.ordered(RUN, sort="task", only={}, outcomes=["passed"]) == [0]
    assert [each.state for each in trials.states(RUN)] == ["done", "running", "pending"]
    assert trials.next_failure(RUN, 0) is None
    assert [each.planned.index for each in trials.shown(RUN, [2, 0, 9])] == [2, 0]


def test_what_waits_works_and_costs(filled):
    call(filled)
    fleet = filled.views.fleet
    queue = fleet.queue(None, 10)
    assert [(each["run"], each["pending"], each["running"], each["delayed"]) for each in queue] == [
        (RUN, 1, 1, 0),
        (LATER, 3, 0, 0),
    ]
    assert fleet.queue("others", 10) == []
    assert [(each["worker"], each["index"]) for each in fleet.workers(None, 10)] == [("w", 1)]
    for by in ("day", "model", "agent", "run", "task"):
        (line,) = fleet.costs("default", 0.0, EVER, by)
        assert (line["calls"], line["nano_usd"], line["prompt_tokens"]) == (1, 2_000, 3), by
    assert fleet.costs(None, 0.0, EVER, "day")[0]["day"] == 1_760_000_000 // 86_400
    (task,) = fleet.tasks(None, 10)
    assert (task["trials"], task["passed"], task["scored"]) == (1, 0, 1)
    assert [each["completion_tokens"] for each in fleet.calls(RUN, 0)] == [4]


def test_events_of_all_runs_are_read_on_and_wake_whoever_waits(filled):
    events = filled.views.events
    last, mark = events.last(), events.mark()

    def write() -> None:
        with filled._db.write() as tx:
            steps.write_event(tx, LATER, "run.changed", {"é": 1})

    writer = threading.Thread(target=write)
    writer.start()
    while not (found := events.after(last, limit=10)):
        events.wait(mark, 5)
    writer.join()
    assert [(each.run_id, each.kind, each.project) for each in found] == [(LATER, "run.changed", "default")]
    assert events.after(last, limit=10, run_id=RUN) == []


def test_labels_and_comments_are_kept_on_a_trial(filled):
    remarks, trials = filled.service.remarks, filled.views.trials
    remarks.set_labels(RUN, 0, ["b", "a"], "ada")
    remarks.set_labels(RUN, 0, ["b", "c"], "bob")
    assert [(each["label"], each["author"]) for each in trials.labels(RUN, 0)] == [("b", "ada"), ("c", "bob")]
    comment = remarks.comment(RUN, 0, "odd \x00", "ada")
    assert remarks.author(RUN, 0, comment) == "ada"
    assert [each["id"] for each in trials.comments(RUN, 0)] == [comment]
    remarks.remove_comment(comment)
    assert trials.comments(RUN, 0) == []
    assert filled.service.retention.marked(RUN) == {0}
    assert filled.service.retention.old_runs() == []


def test_a_schedule_begins_once(filled):
    schedules = filled.service.schedules
    schedules.add(Schedule("s1", "default", "ada", "n", 0.0, "* * * * *", "UTC", "{}", True, 10.0))
    (due,) = schedules.due(10.0)
    assert schedules.claim(due, 70.0, 10.0)
    assert not schedules.claim(due, 70.0, 10.0)
    schedules.began("s1", RUN)
    found = schedules.find("s1", "default")
    assert (found.next_at, found.last_at, found.last_run, found.enabled) == (70.0, 10.0, RUN, True)
    schedules.began("s1", None, "no task")
    schedules.change(schedules.find("s1", None))
    assert [(each.last_run, each.last_error) for each in schedules.page("default")] == [(RUN, "")]
    schedules.delete("s1")
    assert schedules.find("s1", None) is None


def test_a_webhook_is_told_of_what_happens_after_it_was_made(filled):
    hooks = filled.service.webhooks
    hooks.add(Webhook("w1", "default", "ada", 0.0, "json", "https://x", ("run.done",), b"\x00", True, 0))
    (hook,) = hooks.enabled()
    assert hook.secret == b"\x00"
    with filled._db.write() as tx:
        steps.write_event(tx, RUN, "run.changed", {})
        steps.write_event(tx, RUN, "trial.labelled", {}, 0)
    found, last = hooks.next(hook)
    assert [each.kind for each in found] == ["run.changed"]
    assert hooks.move(hook, last, "200")
    assert not hooks.move(hook, last)
    hooks.note("w1", "500")
    hooks.enable("w1", enabled=False)
    hooks.enable("w1", enabled=True)
    assert [(each.last_status, each.enabled) for each in hooks.page(None)] == [("500", True)]
    hooks.delete("w1")
    assert hooks.find("w1", None) is None

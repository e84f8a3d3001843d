"""The books of model calls, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from proctor.store.database import ConflictError
from proctor.store.open import open_store
from proctor.store.spending import DAY, Budget, Release, Reserve, Scope, Settle, Total

RUN = "20260101-aaaa"
SPENT = {"prompt": 5, "completion": 2, "cached": 1, "cache_write": 0, "reasoning": 1}


def reserve(
    number: int, *, budgets: tuple[Budget, ...] = (), attempt: int = 1, nano_usd: int | None = 50
) -> Reserve:
    scopes = (Scope("attempt", f"{RUN}/0/{attempt}"), Scope("run", RUN))
    return Reserve(
        id=f"call-{number}", run_id=RUN, trial=0, attempt=attempt, model="fake/m", scopes=scopes,
        budgets=budgets, tokens=10, nano_usd=nano_usd,
    )  # fmt: skip


def test_a_call_is_held_then_settled_in_every_scope(store, make, clock):
    make.run(store)
    clock.now = 86400.0 * 366
    books, call = store.spending, reserve(1)
    answer = books.apply([call])[0]
    assert answer.day == "1971-01-02"
    day = Scope("day", "1971-01-02")
    assert books.today() == day
    for scope in (*call.scopes, day):
        assert books.total(scope) == Total(requests=1, held_tokens=10, held_nano_usd=50)
    clock.now += 86400
    settle = Settle(reserve=call, day=answer.day, tokens=SPENT, nano_usd=7)
    assert books.apply([settle, settle]) == [None, None], "twice is once"
    for scope in (*call.scopes, day):
        assert books.total(scope) == Total(requests=1, tokens=7, nano_usd=7)
    assert books.total(books.today()) == Total(), "it is booked on the day on which it was made"
    assert books.by(RUN, "model")[0]["cached_tokens"] == 1


def test_what_nobody_knows_stays_at_its_estimate_and_what_was_not_made_goes(store, make):
    make.run(store)
    books, known, unknown, never = store.spending, reserve(1), reserve(2), reserve(3)
    day = books.apply([known, unknown, never])[0].day
    books.apply([
        Settle(reserve=known, day=day, tokens=SPENT, nano_usd=None),
        Settle(reserve=unknown, day=day, tokens=None, nano_usd=None),
        Release(never, day),
        Release(never, day),
    ])  # fmt: skip
    total = Total(requests=2, tokens=7, held_tokens=10, held_nano_usd=50)
    assert books.total(Scope("run", RUN)) == total
    row = books.by(RUN, "idx", "number")[0]
    assert (row["requests"], row["unsettled"], row["unknown_usage"], row["unknown_cost"]) == (2, 0, 1, 2)


def test_a_budget_says_which_it_is_and_whether_waiting_may_help(store, make):
    make.run(store)
    tight = (Budget(scope=Scope("run", RUN), tokens=15),)
    first, second = store.spending.apply([reserve(1, budgets=tight), reserve(2, budgets=tight)])
    assert (first.refusal, second.waits) == ("", True)
    assert second.refusal.startswith("the run's budget of 15 tokens")
    spent = (Budget(scope=Scope("run", RUN), tokens=9),)
    assert not store.spending.apply([reserve(3, budgets=spent)])[0].waits
    money = (Budget(scope=DAY, usd=60e-9),)
    assert "the day's budget of" in store.spending.apply([reserve(4, budgets=money)])[0].refusal
    unknown = store.spending.apply([reserve(5, budgets=money, nano_usd=None)])[0]
    assert "the price of 'fake/m' is unknown" in unknown.refusal
    assert store.spending.total(Scope("run", RUN)).requests == 1


def test_many_writers_at_once_keep_a_budget_exactly(store_url, make):
    with open_store(store_url) as store:
        make.run(store)
    limit = (Budget(scope=Scope("run", RUN), requests=20), Budget(scope=DAY, requests=30))

    def work(worker: int) -> int:
        with open_store(store_url) as own:
            passed = 0
            for number in range(10):
                call = reserve(worker * 100 + number, budgets=limit, attempt=worker)
                answer = own.spending.apply([call])[0]
                if not answer.refusal:
                    passed += 1
                    own.spending.apply([Settle(reserve=call, day=answer.day, tokens=SPENT, nano_usd=1)])
            return passed

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 20
    with open_store(store_url) as store:
        total = store.spending.total(Scope("run", RUN))
        assert total == Total(requests=20, tokens=140, nano_usd=20)
        assert sum(row["requests"] for row in store.spending.by(RUN, "number")) == 20


def test_a_run_takes_its_calls_with_it_and_the_day_remembers(store, make):
    make.run(store)
    store.spending.apply([reserve(1)])
    store.delete_run(RUN)
    assert store.spending.by(RUN, "idx") == []
    assert store.spending.total(Scope("run", RUN)) == Total()
    assert store.spending.total(store.spending.today()).requests == 1


def test_a_call_of_no_run_is_refused_and_changes_nothing(store):
    with pytest.raises(ConflictError):
        store.spending.apply([reserve(1)])
    assert store.spending.total(Scope("run", RUN)) == Total()

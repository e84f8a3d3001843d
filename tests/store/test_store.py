"""The same promises on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from tests.store.workers import RUN, work
from tests.taking import take

from proctor.errors import FenceError, NotFoundError, StoreError, UsageError
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import Artifact, Failure
from proctor.model.trial import Lease, RunStatus
from proctor.store.open import open_store
from proctor.store.store import Store

HOSTILE = "nul \0 surrogate \udcff quote ' \" ; DROP TABLE runs; -- % _ ☃"


class TestRuns:
    def test_a_run_comes_back_as_it_was_given(self, store: Store, make):
        info = make.info(
            tags=("fast", HOSTILE),
            notes=HOSTILE,
            folder=f"/x/{HOSTILE}",
            seed=2**80,
            plan_digest="p" * 64,
            spec={"experiment": "noop", "odd": [None, 1.5, HOSTILE]},
            resolved={"name": "bench"},
            environment={"cpu": {"model": "x" * 5000}},
            vcs={"commit": "abc", "dirty": True},
            versions={"python": "3.11"},
        )
        store.create_run(info, make.plan())
        assert store.run(RUN) == make.info(**{**_fields(info), "total": 3})

    def test_the_list_has_no_spec_or_environment_and_newest_comes_first(self, store: Store, make):
        for number in range(5):
            make.run(store, f"run-{number}", created_at=float(number), spec={"a": 1}, environment={"b": 2})
        runs = store.runs(limit=3)
        assert [run.id for run in runs] == ["run-4", "run-3", "run-2"]
        assert all(not run.spec and not run.environment for run in runs)
        assert [run.id for run in store.runs(before="run-2")] == ["run-1", "run-0"]

    def test_runs_of_one_moment_are_listed_once_each_across_pages(self, store: Store, make):
        for number in range(5):
            make.run(store, f"run-{number}", created_at=1.0)
        first = store.runs(limit=2)
        rest = store.runs(limit=9, before=first[-1].id)
        assert [run.id for run in (*first, *rest)] == [f"run-{number}" for number in (4, 3, 2, 1, 0)]

    def test_the_list_filters_by_name_with_stars_and_by_status(self, store: Store, make):
        make.run(store, "r1", name="sort_big")
        make.run(store, "r2", name="sortXbig")
        make.run(store, "r3", name="100%")
        store.set_status("r2", RunStatus.RUNNING)
        assert {run.id for run in store.runs(name="sort_big")} == {"r1"}
        assert {run.id for run in store.runs(name="SORT*")} == {"r1", "r2"}
        assert {run.id for run in store.runs(name="*%")} == {"r3"}
        assert {run.id for run in store.runs(status="running")} == {"r2"}
        assert store.runs(name="sort*", status=RunStatus.DONE) == []

    def test_a_run_that_exists_is_not_added_again_and_stays_as_it_was(self, store: Store, make):
        make.answered(store)
        with pytest.raises(UsageError, match="it already exists"):
            make.run(store)
        assert store.run(RUN).counts == {"passed": 3}

    def test_a_plan_with_one_key_twice_is_refused_whole(self, store: Store, make):
        trial = make.plan(1).trials[0]
        twin = PlannedTrial(**{**_fields(trial), "index": 1})
        with pytest.raises(UsageError, match="two trials with one key"):
            store.create_run(make.info(), Plan(trials=(trial, twin)))
        assert store.runs() == []
        assert store.events() == []

    def test_the_plan_comes_back_in_order_with_every_field(self, store: Store, make):
        trial = PlannedTrial(
            key="k" * 64,
            index=0,
            kind="task",
            subject="task ☃",
            subject_digest="d" * 64,
            body=2,
            params={"a": [1, None, {"b": 2.5}]},
            seed=2**63 - 1,
            agent="oracle",
            agent_version="1",
            model="m",
            overrides={"E": HOSTILE},
            rollout=4,
            path=f"/p/{HOSTILE}",
        )
        more = make.plan(1200).trials[1:]
        store.create_run(make.info(), Plan(trials=(trial, *more), warnings=("careful",)))
        assert tuple(store.planned(RUN)) == (trial, *more)
        assert store.trial(RUN, "k" * 64) == trial
        ((_, begun),), upcoming = store.take(RUN, worker="w", lease_s=9.0)
        assert (begun, upcoming) == (trial, more[0])
        assert store.warnings(RUN) == ("careful",)
        with pytest.raises(NotFoundError, match="no trial nope"):
            store.trial(RUN, "nope")

    def test_the_status_keeps_the_first_start_and_the_last_end(self, store: Store, make, clock):
        make.run(store)
        for status, at in ((RunStatus.RUNNING, 1.0), (RunStatus.INTERRUPTED, 2.0), (RunStatus.RUNNING, 3.0)):
            clock.now = at
            store.set_status(RUN, status)
        info = store.run(RUN)
        assert (info.status, info.started_at, info.finished_at) == (RunStatus.RUNNING, 1.0, None)
        clock.now = 4.0
        store.set_status(RUN, RunStatus.DONE)
        assert store.run(RUN).finished_at == 4.0
        kinds = [event.kind for event in store.events()]
        assert kinds == ["run.created", "run.started", "run.interrupted", "run.resumed", "run.finished"]
        with pytest.raises(NotFoundError):
            store.set_status("nobody", RunStatus.DONE)

    def test_a_run_whose_engine_fell_silent_is_stalled(self, store: Store, make, clock):
        clock.now = 100.0
        make.run(store)
        store.set_status(RUN, RunStatus.RUNNING)
        take(store, RUN, worker="w", lease_s=30)
        for clock.now, found in ((120.0, set()), (140.0, set()), (200.0, {RUN})):
            assert store.stalled() == found
        store.set_status(RUN, RunStatus.INTERRUPTED)
        clock.now = 1000.0
        assert store.stalled() == set()

    def test_deleting_a_run_takes_its_rows_and_names_the_blobs_nobody_else_has(self, store: Store, make):
        for run_id, digests in (("r1", "ab"), ("r2", "bc")):
            make.run(store, run_id, 1)
            (lease,) = take(store, run_id, worker="w", lease_s=30)
            artifacts = tuple(Artifact(name=each, digest=each * 64, size_bytes=10) for each in digests)
            store.finish(lease, make.record(lease, artifacts=artifacts), counts=True)
        assert store.live_blobs() == {"a" * 64, "b" * 64, "c" * 64}
        assert store.blob_bytes("r1") == 20
        assert store.delete_run("r1") == ["a" * 64]
        assert [run.id for run in store.runs()] == ["r2"]
        assert {event.run_id for event in store.events()} == {"r2"}
        assert list(store.attempts("r1")) == []
        assert store.live_blobs() == {"b" * 64, "c" * 64}
        with pytest.raises(NotFoundError, match="no run r1"):
            store.delete_run("r1")

    def test_ids_of_events_are_never_given_out_again(self, store: Store, make):
        make.run(store, "r1")
        last = store.events()[-1].id
        store.delete_run("r1")
        make.run(store, "r2")
        assert store.events()[0].id > last


class TestReferences:
    @pytest.fixture(autouse=True)
    def _three_runs(self, store: Store, make):
        make.run(store, "20260101-aaaa", created_at=1.0, name="alpha")
        make.run(store, "20260102-bbbb", created_at=2.0, name="alpha")
        make.run(store, "20260102-cccc", created_at=3.0, name="beta")

    @pytest.mark.parametrize(
        ("ref", "run_id"),
        [
            ("20260101-aaaa", "20260101-aaaa"),
            ("20260101", "20260101-aaaa"),
            ("20260102-c", "20260102-cccc"),
            ("alpha", "20260102-bbbb"),
            ("alpha~1", "20260101-aaaa"),
            ("latest", "20260102-cccc"),
            ("latest~2", "20260101-aaaa"),
        ],
    )
    def test_a_run_goes_by_many_names(self, store: Store, ref: str, run_id: str):
        assert store.run(ref).id == run_id

    @pytest.mark.parametrize(
        ("ref", "says"),
        [
            ("alpho", "did you mean 'alpha'"),
            ("zzzzzzzz", "see 'proctor ls'"),
            ("latest~7", "not that many runs"),
            ("20", "no run named"),
            ("../../etc/passwd", "no run named"),
            (HOSTILE, "no run named"),
            ("x" * 5000, "no run named"),
        ],
    )
    def test_what_names_no_run_is_said_with_a_hint(self, store: Store, ref: str, says: str):
        with pytest.raises(NotFoundError, match=says):
            store.run(ref)

    def test_an_ambiguous_beginning_lists_the_runs(self, store: Store):
        with pytest.raises(UsageError, match="20260102-bbbb, 20260102-cccc"):
            store.run("20260102")
        with pytest.raises(UsageError, match="name a run"):
            store.run("  ")

    def test_a_run_folder_names_its_run_where_ever_it_was_moved(self, store: Store, make, tmp_path: Path):
        moved = tmp_path / "moved"
        moved.mkdir()
        (moved / "manifest.json").write_text(json.dumps({"run_id": "20260101-aaaa"}))
        assert store.run(str(moved)).id == "20260101-aaaa"
        plain = tmp_path / "plain"
        plain.mkdir()
        make.run(store, "other", folder=str(plain))
        assert store.run(str(plain)).id == "other"
        (plain / "manifest.json").write_text("[" * 10)
        assert store.run(str(plain)).id == "other"


class TestTrials:
    def test_trials_are_claimed_in_plan_order_once_each(self, store: Store, make):
        plan = make.run(store, size=5)
        first = take(store, RUN, worker="a", lease_s=30, limit=2)
        rest = take(store, RUN, worker="b", lease_s=30, limit=9)
        assert [lease.key for lease in (*first, *rest)] == [trial.key for trial in plan.trials]
        assert [(lease.fence, lease.attempt, lease.expires_at) for lease in first] == [(1, 1, 31.0)] * 2
        assert take(store, RUN, worker="c", lease_s=30) == []
        assert store.workers(RUN) == ["a", "b"]
        assert store.workers("other") == []

    def test_trials_are_taken_in_plan_order_and_have_begun(self, store: Store, make):
        plan = make.run(store, size=3)
        taken = store.take(RUN, worker="a", lease_s=30, limit=2)
        assert [trial for _, trial in taken.begun] == list(plan.trials[:2])
        assert [(lease.fence, lease.attempt, lease.expires_at) for lease, _ in taken.begun] == [
            (1, 1, 31.0)
        ] * 2
        assert taken.upcoming == plan.trials[2]
        assert [(event.kind, event.trial_key) for event in store.events(run_id=RUN)[1:]] == [
            (kind, trial.key) for trial in plan.trials[:2] for kind in ("trial.leased", "trial.running")
        ]
        (lost, _), _ = taken.begun
        assert [lease.key for lease in store.release_worker("a")] == [lease.key for lease, _ in taken.begun]
        assert [row.record.outcome for row in store.attempts(RUN)] == [Outcome.WORKER_LOST] * 2
        with pytest.raises(FenceError):
            store.finish(lost, make.record(lost), counts=True)
        rest = store.take(RUN, worker="b", lease_s=30, limit=9)
        assert [(lease.attempt, trial) for lease, trial in rest.begun] == list(
            zip((2, 2, 1), plan.trials, strict=True)
        )
        assert rest.upcoming is None
        assert store.take(RUN, worker="c", lease_s=30) == ([], None)
        assert store.take("nobody", worker="c", lease_s=30) == ([], None)

    def test_a_record_comes_back_whole(self, store: Store, make):
        make.run(store, size=1)
        (lease,) = take(store, RUN, worker="w", lease_s=30)
        record = make.record(
            lease,
            Outcome.PARTIAL,
            reward=0.1 + 0.2,
            failure=Failure(phase="verify", type="E", message=HOSTILE, traceback="t" * 9000),
            phases_s={"work": 1e-9},
            metrics={"duration_s": {"mean": 1.5}, "odd": [None, True, HOSTILE]},
            iterations=tuple({"duration_s": number / 7} for number in range(500)),
            ledger={"peak": 1},
            usage={"tokens": 2},
            artifacts=(Artifact(name="../x", digest="a" * 64, size_bytes=3, media_type="text/plain"),),
            notes=("contended",),
        )
        store.finish(lease, record, counts=True)
        (row,) = store.attempts(RUN)
        assert row.record == record
        assert row.counts
        assert row.trial == store.trial(RUN, lease.key)
        assert store.attempts_of(RUN, lease.key) == [row]

    def test_an_attempt_that_does_not_count_is_kept_and_the_trial_waits_again(
        self, store: Store, make, clock
    ):
        make.run(store, size=1)
        (lease,) = take(store, RUN, worker="w", lease_s=30)
        store.finish(lease, make.record(lease, Outcome.SANDBOX_ERROR), counts=False, delay_s=8.0)
        clock.now = 8.9
        assert take(store, RUN, worker="w", lease_s=30) == []
        clock.now = 9.0
        (again,) = take(store, RUN, worker="w", lease_s=30)
        assert (again.attempt, again.fence) == (2, 2)
        store.finish(again, make.record(again), counts=True)
        assert [(row.record.number, row.record.outcome, row.counts) for row in store.attempts(RUN)] == [
            (1, Outcome.SANDBOX_ERROR, False),
            (2, Outcome.PASSED, True),
        ]
        assert [row.record.number for row in store.attempts(RUN, counted_only=True)] == [2]
        assert store.counts(RUN) == {"passed": 1}

    def test_counters_follow_every_trial(self, store: Store, make):
        make.run(store, size=6)
        leases = take(store, RUN, worker="w", lease_s=30, limit=4)
        store.finish(leases[0], make.record(leases[0]), counts=True)
        store.finish(leases[1], make.record(leases[1], Outcome.FAILED), counts=True)
        assert store.counts(RUN) == {"failed": 1, "passed": 1}
        assert store.state_counts(RUN) == {"pending": 2, "leased": 0, "running": 2, "done": 2, "cancelled": 0}
        info = store.run(RUN)
        assert (info.total, info.done, info.counts) == (6, 2, {"failed": 1, "passed": 1})
        assert store.runs()[0].counts == info.counts

    def test_an_unknown_run_has_nothing_to_claim(self, store: Store):
        assert take(store, "nobody", worker="w", lease_s=30) == []
        assert store.renew([], lease_s=30) == []

    def test_what_is_not_json_is_refused_and_the_lease_still_holds(self, store: Store, make):
        make.run(store, size=1)
        (lease,) = take(store, RUN, worker="w", lease_s=30)
        with pytest.raises(StoreError, match="cannot be stored as JSON"):
            store.finish(lease, make.record(lease, metrics={"x": {1, 2}}), counts=True)
        store.finish(lease, make.record(lease), counts=True)


class TestLostWorkers:
    def test_an_expired_lease_goes_back_and_the_lost_attempt_is_kept(self, store: Store, make, clock):
        make.run(store, size=2)
        begun, second = take(store, RUN, worker="w", lease_s=30, limit=2)
        clock.now = 30.9
        assert store.reap() == []
        clock.now = 31.0
        assert store.reap("other") == []
        assert store.reap(RUN) == [begun, second]
        assert store.reap(RUN) == []
        row, _ = store.attempts(RUN)
        assert (row.record.outcome, row.counts, row.record.worker) == (Outcome.WORKER_LOST, False, "w")
        assert "no heartbeat" in row.record.failure.message
        again = take(store, RUN, worker="v", lease_s=30, limit=2)
        assert [lease.attempt for lease in again] == [2, 2]

    def test_a_late_result_of_a_lost_worker_is_refused_and_nothing_is_written(
        self, store: Store, make, clock
    ):
        make.run(store, size=1)
        (lost,) = take(store, RUN, worker="w", lease_s=30)
        clock.now = 100.0
        store.reap()
        before = (list(store.attempts(RUN)), store.events())
        with pytest.raises(FenceError, match="is no longer valid"):
            store.finish(lost, make.record(lost), counts=True)
        (new,) = take(store, RUN, worker="v", lease_s=30)
        with pytest.raises(FenceError):
            store.finish(lost, make.record(lost), counts=True)
        assert (list(store.attempts(RUN)), store.events()[:-2]) == before
        store.finish(new, make.record(new), counts=True)
        assert store.counts(RUN) == {"passed": 1}

    def test_a_result_is_not_written_twice(self, store: Store, make):
        make.run(store, size=1)
        (lease,) = take(store, RUN, worker="w", lease_s=30)
        store.finish(lease, make.record(lease), counts=True)
        with pytest.raises(FenceError):
            store.finish(lease, make.record(lease), counts=True)
        assert store.counts(RUN) == {"passed": 1}

    def test_a_forged_lease_on_another_trial_is_refused(self, store: Store, make):
        make.run(store, size=2)
        first, second = take(store, RUN, worker="w", lease_s=30, limit=2)
        forged = Lease(RUN, first.key, second.index, "w", 1, 1, 31.0)
        with pytest.raises(FenceError):
            store.finish(forged, make.record(forged), counts=True)

    def test_renewal_keeps_what_is_ours_and_names_what_is_lost(self, store: Store, make, clock):
        make.run(store, size=2)
        leases = take(store, RUN, worker="w", lease_s=30, limit=2)
        clock.now = 25.0
        assert store.renew(leases, lease_s=30) == []
        clock.now = 54.0
        assert store.reap() == []
        store.finish(leases[0], make.record(leases[0]), counts=True)
        assert store.renew(leases, lease_s=30) == store.lost(leases) == [leases[0]]
        clock.now = 84.0
        assert store.lost(leases) == [leases[0]]
        assert store.reap() != []
        assert store.renew(leases, lease_s=30) == store.lost(leases) == leases

    def test_a_dead_worker_is_released_at_once_and_others_keep_theirs(self, store: Store, make, clock):
        make.run(store, size=3)
        mine = take(store, RUN, worker="host:1:2:x", lease_s=3000, limit=2)
        take(store, RUN, worker="host:1:2:y", lease_s=3000)
        clock.now = 2.0
        assert [lease.key for lease in store.release_worker("host:1:2:x")] == [lease.key for lease in mine]
        assert store.release_worker("host:1:2:x") == []
        assert store.workers(RUN) == ["host:1:2:y"]
        row, _ = store.attempts(RUN)
        assert row.record.failure.message == "worker host:1:2:x is dead"
        assert row.record.ended_at == 2.0

    def test_cancelling_ends_what_waits_and_what_runs(self, store: Store, make):
        make.run(store, size=5)
        done, begun, other = take(store, RUN, worker="w", lease_s=30, limit=3)
        store.finish(done, make.record(done), counts=True)
        assert store.cancel(RUN) == 4
        assert store.cancel(RUN) == 0
        assert store.renew([begun, other], lease_s=30) == [begun, other]
        with pytest.raises(FenceError):
            store.finish(begun, make.record(begun), counts=True)
        assert store.state_counts(RUN) == {"pending": 0, "leased": 0, "running": 0, "done": 1, "cancelled": 4}
        assert store.counts(RUN) == {"cancelled": 4, "passed": 1}
        assert store.run(RUN).done == 1
        assert [row.record.outcome for row in store.attempts(RUN)] == [
            Outcome.PASSED,
            *[Outcome.CANCELLED] * 2,
        ]


class TestEvents:
    def test_every_change_of_state_is_one_event_in_order(self, store: Store, make):
        make.run(store, size=1)
        (lease,) = take(store, RUN, worker="w", lease_s=30)
        store.finish(lease, make.record(lease), counts=True)
        events = store.events()
        assert [event.kind for event in events] == [
            "run.created",
            "trial.leased",
            "trial.running",
            "attempt.ended",
            "trial.done",
        ]
        assert [event.id for event in events] == sorted({event.id for event in events})
        assert [event.trial_key for event in events] == [None, *[lease.key] * 4]
        assert events[-1].data == {
            "attempt": 1,
            "outcome": "passed",
            "reward": None,
            "duration_s": 2.5,
            "state": "done",
        }

    def test_a_reader_goes_on_from_the_last_id_and_may_follow_one_run(self, store: Store, make):
        make.run(store, "r1")
        make.run(store, "r2")
        first = store.events(limit=1)
        assert [event.run_id for event in first] == ["r1"]
        assert [event.run_id for event in store.events(after=first[-1].id)] == ["r2"]
        assert [event.run_id for event in store.events(run_id="r2")] == ["r2"]
        assert store.events(after=10**15) == []

    def test_a_reader_beside_many_writers_misses_nothing(self, store: Store, make):
        make.run(store, size=60)
        seen: list[int] = []
        writers = [threading.Thread(target=work, args=(store, f"w{number}", make)) for number in range(4)]
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            seen += [event.id for event in store.events(after=seen[-1] if seen else 0, limit=7)]
        while more := store.events(after=seen[-1] if seen else 0):
            seen += [event.id for event in more]
        assert len(seen) == 1 + 4 * 60
        assert seen == [event.id for event in store.events()]


class TestHistoryAndImport:
    def test_history_gives_medians_by_subject_and_by_label(self, store: Store, make):
        make.run(store, size=4)
        for number, lease in enumerate(take(store, RUN, worker="w", lease_s=30, limit=4)):
            outcome = Outcome.PASSED if number < 3 else Outcome.CANCELLED
            store.finish(lease, make.record(lease, outcome, ended_at=11.0 + number), counts=True)
        history = store.history(["noop", "unknown"])
        assert history["noop"] == 2.0
        assert history["noop(n=0)"] == 1.0
        assert "noop(n=3)" not in history
        assert "unknown" not in history

    def test_a_run_moves_to_another_store_without_loss(self, store: Store, make, tmp_path: Path):
        make.run(store, size=4, tags=("t",), spec={"a": 1})
        leases = take(store, RUN, worker="w", lease_s=30, limit=2)
        artifact = Artifact(name="n", digest="a" * 64, size_bytes=9)
        store.finish(leases[0], make.record(leases[0], artifacts=(artifact,)), counts=True)
        store.finish(leases[1], make.record(leases[1], Outcome.STARVED), counts=False)
        store.set_status(RUN, RunStatus.INTERRUPTED)
        with open_store(str(tmp_path / "other.db")) as other:
            rows = list(store.attempts(RUN))
            info = store.run(RUN)
            other.import_run(info, store.planned(RUN), ((row.record, row.counts) for row in reversed(rows)))
            assert other.run(RUN) == info
            assert list(other.attempts(RUN)) == rows
            assert list(other.planned(RUN)) == list(store.planned(RUN))
            assert other.live_blobs() == {"a" * 64}
            assert other.check() == []
            assert [lease.attempt for lease in take(other, RUN, worker="w", lease_s=30, limit=9)] == [2, 1, 1]

    def test_an_imported_cancelled_run_has_nothing_left_to_claim(self, store: Store, make):
        plan = make.plan(3)
        store.import_run(make.info(status=RunStatus.CANCELLED, total=3), plan.trials, [])
        assert store.state_counts(RUN)["cancelled"] == 3

    def test_an_import_with_a_stray_attempt_is_refused_whole(self, store: Store, make):
        stray = make.record(Lease(RUN, "stray", 0, "w", 1, 1, 1.0))
        with pytest.raises(UsageError, match="which its plan does not have"):
            store.import_run(make.info(total=1), make.plan(1).trials, [(stray, True)])
        assert store.runs() == []


def _fields(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__struct_fields__}

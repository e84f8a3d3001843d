"""The profiles are really in force, and a wrong answer is noticed."""

from __future__ import annotations

import sqlite3

import pytest

from proctor.experiments.base import ExperimentContext
from proctor.experiments.database.pragma_profile import PragmaProfile, payload_bytes
from proctor.experiments.database.profiles import PROFILES, check_profile
from proctor.experiments.database.table import WRITE_SHARE, Expected, plan_operations

SMALL = {"operations": 60, "records": 30, "batch": 7}


def start(tmp_path, **params):
    experiment = PragmaProfile({**SMALL, **params})
    context = ExperimentContext(run_dir=tmp_path, seed=5)
    experiment.setup(context)
    return experiment, context


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("workload", WRITE_SHARE)
def test_every_profile_does_every_workload_and_leaves_nothing(tmp_path, profile, workload):
    experiment, context = start(tmp_path, profile=profile, workload=workload)
    results = [experiment.execute_once(context) for _ in range(3)]
    experiment.teardown(context)
    writes = round(60 * WRITE_SHARE[workload])
    assert [(each["reads"], each["writes"], each["commits"]) for each in results] == [
        (60 - writes, writes, 9)
    ] * 3
    assert all(each["db_bytes"] > 0 and each["ops_per_s"] > 0 for each in results)
    assert all(
        0 < each[f"{kind}_p50_us"] <= each[f"{kind}_p95_us"]
        for each in results
        for kind in ("read", "write", "commit")
    )
    assert list(tmp_path.iterdir()) == []


def test_every_profile_differs_from_every_other():
    assert len({tuple(each.items()) for each in PROFILES.values()}) == len(PROFILES)


def test_a_pragma_that_is_not_in_force_is_noticed(tmp_path):
    experiment, _ = start(tmp_path, profile="safety")
    experiment.tables[0].connection.execute("PRAGMA synchronous = 0")
    with pytest.raises(AssertionError, match="PRAGMA synchronous is 0 here, profile 'safety' needs 3"):
        check_profile(experiment.tables[0].connection, "safety")
    experiment.teardown(ExperimentContext())


def test_every_call_changes_rows_so_that_sqlite_cannot_skip_its_writes(tmp_path):
    experiment, context = start(tmp_path, workload="write-heavy", profile="balanced")
    changes = []
    for _ in range(3):
        experiment.execute_once(context)
        changes.append(dict(experiment.tables[0].connection.execute("SELECT key, value FROM item")))
    experiment.teardown(context)
    written = {key for key, value in experiment.tables[0].operations if value is not None}
    assert all(
        changes[1][key] == changes[0][key] + 1 and changes[2][key] == changes[1][key] + 1 for key in written
    )


def test_wrong_data_is_noticed_while_reading_and_at_the_end(tmp_path):
    experiment, context = start(tmp_path, workload="read-heavy")
    experiment.execute_once(context)
    experiment.tables[0].connection.execute("UPDATE item SET value = value + 1")
    with pytest.raises(AssertionError, match="the reads add up to"):
        experiment.execute_once(context)
    with pytest.raises(AssertionError, match="does not hold what was written"):
        experiment.teardown(context)
    assert list(tmp_path.iterdir()) == []


def test_the_expectation_agrees_with_a_plain_replay():
    operations = plan_operations(3, 200, 20, 0.5)
    rows = dict.fromkeys(range(20), 0)
    expected = Expected(operations)
    for call in range(4):
        total = 0
        for key, value in operations:
            if value is None:
                total += rows[key]
            else:
                rows[key] = value + call
        assert expected.read_total(call) == total
        assert expected.rows(20, call + 1) == rows


def test_the_same_seed_gives_the_same_operations():
    assert plan_operations(1, 50, 10, 0.5) == plan_operations(1, 50, 10, 0.5)
    assert plan_operations(1, 50, 10, 0.5) != plan_operations(2, 50, 10, 0.5)


def test_teardown_after_a_setup_that_failed_is_harmless(tmp_path):
    experiment = PragmaProfile(SMALL)
    with pytest.raises(sqlite3.OperationalError):
        experiment.setup(ExperimentContext(run_dir=tmp_path / "missing"))
    experiment.teardown(ExperimentContext())


def test_what_a_killed_process_left_behind_does_no_harm(tmp_path):
    for suffix in ("", "-journal", "-wal"):
        (tmp_path / f"pragma_profile_safety_mixed.db{suffix}").write_bytes(b"left over")
    experiment, context = start(tmp_path, profile="safety", workload="mixed")
    experiment.execute_once(context)
    experiment.teardown(context)
    assert list(tmp_path.iterdir()) == []


def test_all_profiles_and_workloads_in_one_call_are_normalised_to_balanced(tmp_path):
    experiment, context = start(tmp_path, operations=20)
    found = [experiment.execute_once(context) for _ in range(2)][-1]
    experiment.teardown(context)
    raw, normalised = found["raw_results"], found["normalized_results"]
    assert set(raw) == set(PROFILES)
    assert all(set(row) == {"write_heavy", "read_heavy", "mixed"} for row in raw.values())
    for workload, row in normalised.items():
        for profile, value in row.items():
            assert value == raw["balanced"][workload] / raw[profile][workload]
    assert found["safety_mixed_s"] == raw["safety"]["mixed"]
    assert list(tmp_path.iterdir()) == []


def test_one_profile_alone_is_not_normalised(tmp_path):
    experiment, context = start(tmp_path, operations=20, profile="performance")
    found = experiment.execute_once(context)
    experiment.teardown(context)
    assert set(found["raw_results"]) == {"performance"}
    assert "normalized_results" not in found


def test_the_size_of_a_row_is_given_in_one_way():
    assert payload_bytes(1000, None, None) == 200
    assert payload_bytes(1000, 7, None) == 7
    assert payload_bytes(1000, None, 5.0) == 5000
    with pytest.raises(ValueError, match="keep one"):
        payload_bytes(1000, 7, 5.0)

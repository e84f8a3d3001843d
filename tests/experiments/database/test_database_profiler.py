"""Every kind of operation is timed, and rows that are not what was written are noticed."""

from __future__ import annotations

import pytest

from proctor.experiments.base import ExperimentContext
from proctor.experiments.database.database_profiler import OPERATIONS, DatabaseProfiler
from proctor.experiments.database.profiles import PROFILES

SMALL = {"records": 60, "batch_size": 10, "queries": 12}


def start(tmp_path, **params):
    experiment, context = DatabaseProfiler({**SMALL, **params}), ExperimentContext(run_dir=tmp_path, seed=3)
    experiment.setup(context)
    return experiment, context


@pytest.mark.parametrize("params", [{"in_memory": True}, *({"profile": each} for each in PROFILES)])
def test_every_operation_has_its_share_and_percentiles(tmp_path, params):
    experiment, context = start(tmp_path, **params)
    found = [experiment.execute_once(context) for _ in range(2)][-1]
    experiment.teardown(context)
    assert sum(found[f"{name}_share"] for name in OPERATIONS) == pytest.approx(1)
    assert all(found[f"{name}_p50_us"] <= found[f"{name}_p99_us"] for name in OPERATIONS)
    assert list(tmp_path.iterdir()) == []


def test_changed_rows_are_noticed(tmp_path):
    experiment, context = start(tmp_path, in_memory=True)
    experiment.energies = {agent: [1, *values] for agent, values in experiment.energies.items()}
    with pytest.raises(AssertionError, match="not those that were written"):
        experiment.execute_once(context)
    experiment.teardown(context)


def test_rows_that_were_not_deleted_are_noticed(tmp_path):
    experiment, context = start(tmp_path, in_memory=True)
    experiment.rows = [*experiment.rows]
    experiment._ask = lambda *_: None
    experiment._write = lambda *_: None
    with pytest.raises(AssertionError, match="0 rows are left"):
        experiment.execute_once(context)
    experiment.teardown(context)

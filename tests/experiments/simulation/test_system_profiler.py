"""A whole simulation is taken apart into stages, and what is monitored is what was asked for."""

from __future__ import annotations

import sqlite3

import pytest

from proctor.experiments.base import ExperimentContext
from proctor.experiments.simulation.memory import near, remembered
from proctor.experiments.simulation.system_profiler import SystemProfiler

SMALL = {"num_agents": 10, "steps": 5}


def run(tmp_path, **params):
    experiment, context = SystemProfiler({**SMALL, **params}), ExperimentContext(run_dir=tmp_path, seed=2)
    experiment.setup(context)
    found = experiment.execute_once(context)
    files = [each.name for each in tmp_path.iterdir()]
    experiment.teardown(context)
    assert list(tmp_path.iterdir()) == []
    return found, files


def test_stages_add_up_and_growth_with_agents_has_an_interval(tmp_path):
    found, _ = run(tmp_path, agent_counts=[5, 10, 20])
    assert sum(found[f"{stage}_share"] for stage in ("act", "observe", "log")) == pytest.approx(1)
    assert found["step_time_exponent_low"] < found["step_time_exponent"] < found["step_time_exponent_high"]
    assert found["samples"] == 6


def test_only_what_is_asked_for_is_monitored(tmp_path):
    off = {"monitor_cpu": False, "monitor_memory": False, "monitor_disk": False}
    found, _ = run(tmp_path, **off)
    assert not {"process_cpu_s", "rss_bytes", "disk_read_bytes", "network_bytes"} & found.keys()
    found, _ = run(tmp_path, **off, monitor_network=True)
    assert found["network_bytes"] >= 0


def test_a_sampling_interval_takes_fewer_samples(tmp_path):
    assert run(tmp_path, sampling_interval=1000.0)[0]["samples"] == 1


@pytest.mark.parametrize(
    ("params", "files"),
    [
        ({"use_in_memory_db": True}, []),
        ({"use_in_memory_db": True, "persist_db_on_completion": True}, ["system_profiler.db"]),
        ({"use_in_memory_db": False}, ["system_profiler.db"]),
    ],
)
def test_the_log_is_kept_where_the_parameters_say(tmp_path, params, files):
    found, there = run(tmp_path, **params)
    assert there == files
    assert (found["persist_s"] > 0) == bool(params.get("persist_db_on_completion"))


def test_a_lost_row_is_noticed(tmp_path, monkeypatch):
    import proctor.experiments.simulation.system_profiler as module

    write = module.write_steps

    def losing(connection: sqlite3.Connection, steps):
        written = write(connection, steps)
        connection.execute("DELETE FROM action WHERE rowid = 1")
        return written

    monkeypatch.setattr(module, "write_steps", losing)
    with pytest.raises(AssertionError, match="rows of the log are missing"):
        run(tmp_path)


def test_every_agent_remembers_as_much_as_asked_for_and_the_same_each_time():
    found = remembered(4, 120, seed=3)
    assert found == remembered(4, 120, seed=3) != remembered(4, 120, seed=4)
    assert [len(each) for each in found.values()] == [120] * 4
    assert [each.step for each in found[2]] == list(range(120))
    some = near(found[0], found[0][5].x, found[0][5].y, 0)
    assert found[0][5] in some

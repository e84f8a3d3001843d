"""The simulation of a cluster is held to what queueing theory and plain arithmetic say."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


def costs(**given: float):
    from cluster_model import Costs

    return replace(Costs(**{each.name: 0.0 for each in fields(Costs)}), **given)


def test_activities_at_a_station_take_turns_and_at_two_hosts_they_do_not():
    from queueing import Host, Need, Simulation, Station

    host = Host("h", 2)
    one, many = Station("one", 1, host), Station("many", 9, host)
    for station, took_s in ((one, 3.0), (many, 2.0)):
        simulation = Simulation(vary=False)
        for _ in range(3):
            simulation.begin(Need(station, 1.0) for _ in range(1))
        assert simulation.run() == took_s  # one server; then nine servers on two cores


def test_a_server_that_is_kept_serves_nobody_else_until_it_is_given_back():
    from queueing import Need, Simulation, Station

    line, simulation, seen = Station("line", 1), Simulation(vary=False), []

    def call():
        yield Need(line, 0.0, keep=True)
        yield Need(None, 2.0)
        simulation.give_back(line)
        seen.append(simulation.now)

    simulation.begin(call())
    simulation.begin(call())
    simulation.run()
    assert seen == [2.0, 4.0]


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_the_mean_wait_at_one_server_is_that_of_the_formula(share):
    from queueing import Need, Simulation, Station

    station, simulation, waits = Station("s", 1), Simulation(seed=3), []

    def customer():
        began = simulation.now
        yield Need(station, share)
        waits.append(simulation.now - began)

    def arrivals():
        for _ in range(60_000):
            simulation.begin(customer())
            yield Need(None, simulation.varied(1.0))

    simulation.begin(arrivals())
    simulation.run()
    expected = share / (1 - share)  # M/M/1: 1 / (service rate - arrival rate)
    assert sum(waits) / len(waits) == pytest.approx(expected, rel=0.1)


def test_throughput_is_that_of_the_slowest_station_and_it_is_named():
    from cluster_model import Shape, Work, simulate

    work = Work("w", blobs=0)
    slow_store = simulate(costs(exchange_store_ms=40.0, trial_ms=1.0), work, Shape(20, 8), 4000, vary=False)
    assert slow_store.per_second(4000) == pytest.approx(100, rel=0.05)  # four cores, 40 ms each
    assert slow_store.first == "store"
    slow_folder = simulate(costs(write_ms=20.0, trial_ms=1.0), work, Shape(4, 8), 1000, vary=False)
    assert slow_folder.per_second(1000) == pytest.approx(50, rel=0.1)
    assert slow_folder.first == "coordinator"


def test_files_follow_rows_and_hold_up_no_run():
    from cluster_model import COPIED_AT_ONCE, Shape, Work, simulate

    work, shape = Work("w", blobs=5), Shape(4, 8)
    without = simulate(costs(trial_ms=10.0), work, shape, 2000, vary=False)
    waiting = simulate(costs(trial_ms=10.0, copy_wait_ms=100.0), work, shape, 2000, vary=False)
    assert waiting.seconds == without.seconds
    assert without.files_s == 0
    whole_s = 2000 * 5 * 0.1 / COPIED_AT_ONCE
    assert waiting.seconds + waiting.files_s == pytest.approx(whole_s, rel=0.2)
    busy = simulate(costs(trial_ms=10.0, copy_ms=20.0), work, shape, 2000, vary=False)
    assert busy.seconds + busy.files_s == pytest.approx(2000 * 5 * 0.02 / 2, rel=0.1)  # two cores
    assert busy.use["its cores"] > 0.7


def test_agents_that_only_wait_take_as_long_as_their_models():
    from cluster_model import Shape, Work, simulate

    work = Work("w", turns=10, think_s=2.0, blobs=0)
    found = simulate(costs(), work, Shape(4, 25), 100)
    assert 20.0 <= found.seconds <= 22.0
    assert found.first == ""


def test_the_measured_costs_are_complete_and_say_how_they_are_renewed():
    import json

    from cluster_model import Costs

    known = json.loads((BENCHMARKS / "cluster_costs.json").read_text())
    assert set(known) == {each.name for each in fields(Costs)}
    assert all(each["value"] > 0 and each["command"] for each in known.values())

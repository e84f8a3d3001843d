"""`proctor load`: what it counts, and on whom it may be let loose."""

from __future__ import annotations

import json

import pytest
from tests.server.conftest import one_server, shared_home

from proctor.cli.main import main
from proctor.client.load import Driver, Load, Report

__all__ = ["one_server", "shared_home"]


@pytest.mark.needs("bubblewrap")
def test_every_run_of_a_load_ends_once(one_server, capsys, monkeypatch):
    monkeypatch.setenv("PROCTOR_URL", one_server.address)
    args = ["load", "--users", "3", "--oracle", "5", "--host-root", "--seconds", "120"]
    assert main([*args, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["submitted"], found["ended"], found["outcomes"]) == (5, 5, {"passed": 5})
    assert (found["lost"], found["doubled"], found["unfinished"], found["good"]) == ([], [], [], True)
    assert found["latencies"]["submit"]["count"] == 5
    assert found["latencies"]["all"]["p99_ms"] > 0


def test_only_a_server_of_ones_own_is_put_under_load(capsys):
    assert main(["load", "--url", "https://proctor.example"]) == 2
    assert "--this-server-is-mine" in capsys.readouterr().err
    assert main(["load", "--users", "500", "--runs", "500", "--url", "http://127.0.0.1:9"]) == 2


def test_what_is_missing_double_or_unfinished_is_named(capsys):
    from proctor.cli.load import _print

    driver = Driver("http://127.0.0.1:9", "", Load(users=1, runs=4))
    driver._accepted = {"a": "n-0", "b": "n-1", "c": "n-2"}
    row = {"status": "done", "wanted": False, "done": 1, "total": 1, "counts": {"passed": 1}}
    rows = [{**row, "id": "a", "name": "n-0"}, {**row, "id": "x", "name": "n-0"}]
    rows += [{**row, "id": "b", "name": "n-1", "status": "running"}]
    found: Report = driver._report(rows, 2.0)
    assert (found.lost, found.doubled, found.unfinished) == (["c"], ["n-0"], ["b"])
    assert not found.good
    _print(found)
    assert "lost 1, doubled 1, unfinished 1" in capsys.readouterr().out

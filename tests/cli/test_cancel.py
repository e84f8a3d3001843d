from __future__ import annotations

import json
from pathlib import Path

from tests.taking import take

from proctor.cli.main import main
from proctor.model.trial import RunStatus
from proctor.settings import load_settings
from proctor.store.open import open_store


def test_nothing_more_starts_and_the_folder_is_closed(store_rollouts, capsys):
    ends = {("a", "oracle"): [1.0, None, None]}
    info = store_rollouts(ends, status=RunStatus.INTERRUPTED, folder=True)
    assert main(["cancel", "study"]) == 0
    assert "2 trials will not run" in capsys.readouterr().out
    with open_store(load_settings().store_url) as store:
        assert store.run(info.id).status is RunStatus.CANCELLED
        assert take(store, info.id, worker="w", lease_s=9.0) == []
    summary = json.loads((Path(info.folder) / "summary.json").read_text())
    assert summary["run"]["status"] == "cancelled"
    assert summary["arms"][0]["scored"] == 1


def test_what_runs_loses_its_lease(store_rollouts, capsys):
    info = store_rollouts({("a", "oracle"): [None, None]}, status=RunStatus.RUNNING)
    with open_store(load_settings().store_url) as store:
        (lease,) = take(store, info.id, worker="host:1:2:x", lease_s=30.0)
        assert main(["cancel", info.id, "--json"]) == 0
        assert store.renew([lease], lease_s=30.0) == [lease]
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "run": info.id,
        "status": "cancelled",
        "cancelled_trials": 2,
        "workers": ["host:1:2:x"],
    }


def test_a_run_that_is_over_stays_as_it_is(store_rollouts, capsys):
    info = store_rollouts({("a", "oracle"): [1.0]})
    assert main(["cancel", "study"]) == 0
    assert "is already done; nothing was changed" in capsys.readouterr().out
    assert main(["cancel", "study", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "done"
    with open_store(load_settings().store_url) as store:
        assert store.run(info.id).status is RunStatus.DONE


def test_an_unknown_run_is_named(capsys):
    assert main(["cancel", "nobody"]) == 2
    assert "nobody" in capsys.readouterr().err

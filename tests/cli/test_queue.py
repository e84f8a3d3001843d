"""`proctor queue` tells people and autoscalers how much could run now."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from tests.server.conftest import begin, finish

from proctor.cli.main import main
from proctor.model.trial import RunStatus
from proctor.settings import load_settings
from proctor.store.open import open_store


@pytest.fixture
def waiting(store_rollouts):
    """A run that a server would execute, with three rollouts to do."""
    run = store_rollouts({("task", "oracle"): [None, None, None]}, status=RunStatus.PENDING)
    with open_store(load_settings().store_url) as store:
        store.service.queue.want(run.id, wanted=True)
    return run


def test_a_table_says_what_runs_and_what_could(waiting, capsys):
    assert main(["queue", "--slots", "2"]) == 0
    said = capsys.readouterr().out
    assert "0 running, 3 could run now, 0 later; workers with 2 at a time: 2" in said
    assert "task" in said


def test_json_is_one_line_for_an_autoscaler(waiting, capsys):
    assert main(["queue", "--slots", "8", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["trials"], found["wanted_workers"]) == (3, 1)
    assert found["classes"][0]["kind"] == "task"


def test_an_empty_store_wants_no_worker(capsys):
    assert main(["queue", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wanted_workers"] == 0


def test_it_repeats_until_it_is_terminated(waiting):
    with subprocess.Popen(
        [sys.executable, "-m", "proctor.cli.main", "queue", "--every", "1"],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    ) as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["trials"] for _ in range(2)] == [3, 3]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_it_asks_the_server_that_commands_talk_to(tmp_path, monkeypatch, capsys):
    server = begin(tmp_path)
    try:
        monkeypatch.setenv("PROCTOR_URL", server.address)
        assert main(["queue", "--slots", "4", "--json"]) == 0
    finally:
        finish(server)
    assert json.loads(capsys.readouterr().out)["slots"] == 4


def test_too_many_slots_are_a_mistake(capsys):
    assert main(["queue", "--slots", "0"]) == 2

"""Following a run of a server: what people are told while it lasts."""

from __future__ import annotations

from proctor.cli.live_tasks import TaskLive
from proctor.cli.remote_run import _tell
from proctor.client.client import Happened


def test_a_run_that_nobody_executes_says_why(capsys):
    waits = Happened(id=1, run="r", at=0.0, kind="run.waiting", data={"reason": "no key on any worker"})
    with TaskLive([]) as live:
        _tell(None, "r", {}, live, [waits], set())
    assert "no key on any worker" in capsys.readouterr().err

"""What the record says about limits that were reached."""

from __future__ import annotations

import pytest

from proctor.trial.task.blame import own_limits


@pytest.mark.parametrize(
    ("ledger", "notes"),
    [
        ({}, []),
        ({"output_paused_s": 2.34}, ["output: so much was written that its writers had to wait for 2.3 s"]),
        ({"oom_kills": 1}, ["memory: a process was killed at the task's own limit"]),
        ({"oom_kills": 2, "host_oom": True}, []),
        (
            {"storage_exceeded": "over 5 MB"},
            ["storage: over 5 MB; everything that ran was ended"],
        ),
    ],
)
def test_each_limit_has_a_note(ledger, notes):
    assert own_limits(ledger) == notes

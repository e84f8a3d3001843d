from __future__ import annotations

from proctor.trial.live import Live
from proctor.trial.phases import Phases


def test_the_phases_that_people_wait_for_are_told_as_they_begin():
    told = []
    phases = Phases(entered=Live(lambda *note: told.append(note)).phase)
    for name in ("image", "queue", "start", "setup", "agent", "collect", "verify", "stop"):
        with phases.phase(name):
            pass
    assert told == [("attempt.phase", {"phase": name}) for name in ("image", "start", "agent", "verify")]


def test_a_log_that_grows_is_told_at_most_once_a_second_with_its_whole_length():
    told, now = [], [0.0]
    live = Live(lambda kind, data: told.append((kind, data["name"], data["bytes"])), clock=lambda: now[0])
    for moment, name in ((0.0, "agent.log"), (0.5, "agent.log"), (0.6, "tests.log"), (1.0, "agent.log")):
        now[0] = moment
        live.log(name, b"x" * 10)
    assert told == [
        ("attempt.log", "agent.log", 10),
        ("attempt.log", "tests.log", 10),
        ("attempt.log", "agent.log", 30),
    ]

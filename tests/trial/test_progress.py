from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from proctor.agents.trajectory import Trajectory
from proctor.trial.progress import LiveEvents, LiveSteps, LogFile, Logs, Phases
from proctor.trial.redact import Redactor, secrets_in

NOTHING = Redactor({})


def test_a_small_log_is_complete(tmp_path):
    log = LogFile(tmp_path / "a.txt", NOTHING, head_bytes=10, tail_bytes=10)
    log.write(b"hello")
    log.close()
    assert (tmp_path / "a.txt").read_bytes() == b"hello"


def test_a_large_log_keeps_its_beginning_and_its_end_and_counts_what_is_missing(tmp_path):
    log = LogFile(tmp_path / "a.txt", NOTHING, head_bytes=10, tail_bytes=10)
    for number in range(100):
        log.write(f"{number:04d}\n".encode())
    log.close()
    text = (tmp_path / "a.txt").read_text()
    assert text.startswith("0000\n0001\n\n…")
    assert text.endswith("0098\n0099\n")
    kept = len(text.encode()) - len(text[text.index("\n…") : text.index("…\n") + 2].encode())
    missing = int(text.split("… ")[1].split(" bytes")[0])
    assert kept + missing == 500
    assert list(tmp_path.iterdir()) == [tmp_path / "a.txt"]


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_whatever_the_chunks_nothing_within_the_limits_is_lost(tmp_path_factory, chunks):
    path = tmp_path_factory.mktemp("log") / "a.txt"
    log = LogFile(path, NOTHING, head_bytes=600, tail_bytes=600)
    for chunk in chunks:
        log.write(chunk)
    log.close()
    assert (path.read_bytes() if path.exists() else b"") == b"".join(chunks)


def test_logs_are_made_when_first_written_and_stay_in_their_folder(tmp_path):
    logs = Logs(tmp_path / "logs", NOTHING)
    logs.write("../../evil.txt", b"x")
    logs.write("agent.txt", b"12345")
    assert logs.close() == []
    assert sorted(file.name for file in (tmp_path / "logs").iterdir()) == ["agent.txt", "evil.txt"]


def test_a_log_that_is_not_complete_is_noted(tmp_path):
    logs = Logs(tmp_path / "logs", NOTHING)
    for _ in range(13):
        logs.write("agent.txt", bytes(1 << 20))
    assert logs.close() == [
        "agent.txt: 4,194,304 of 13,631,488 bytes were left out of the middle of this log"
    ]


@given(
    st.lists(
        st.sampled_from([b"sec", b"ret", b"-val", b"ue", b"secret-value", b" other ", b"s"]), max_size=30
    )
)
def test_a_secret_never_passes_however_it_is_cut(chunks):
    stream = Redactor({"KEY": "secret-value"}).stream()
    out = b"".join(stream.feed(chunk) for chunk in chunks) + stream.end()
    assert b"secret-value" not in out
    assert out == b"".join(chunks).replace(b"secret-value", b"[redacted:KEY]")


def test_only_variables_that_sound_secret_are_secrets():
    environ = {
        "OPENAI_API_KEY": "sk-12345678",
        "PATH": "/usr/bin:/bin",
        "DB_PASSWORD": "short",
        "MY_TOKEN": "t" * 9,
    }
    assert secrets_in(environ) == {"OPENAI_API_KEY": "sk-12345678", "MY_TOKEN": "t" * 9}
    assert Redactor({"A": "x" * 9}).text("see " + "x" * 9) == "see [redacted:A]"
    assert Redactor({}).text("plain") == "plain"


def test_the_phases_that_people_wait_for_are_told_as_they_begin():
    told = []
    phases = Phases(entered=LiveEvents(lambda *note: told.append(note)).phase)
    for name in ("image", "queue", "start", "setup", "agent", "collect", "verify", "stop"):
        with phases.phase(name):
            pass
    assert told == [("attempt.phase", {"phase": name}) for name in ("image", "start", "agent", "verify")]


def test_a_log_that_grows_is_told_at_most_once_a_second_with_its_whole_length():
    told, now = [], [0.0]
    live = LiveEvents(
        lambda kind, data: told.append((kind, data["name"], data["bytes"])), clock=lambda: now[0]
    )
    for moment, name in ((0.0, "agent.log"), (0.5, "agent.log"), (0.6, "tests.log"), (1.0, "agent.log")):
        now[0] = moment
        live.log(name, b"x" * 10)
    assert told == [
        ("attempt.log", "agent.log", 10),
        ("attempt.log", "tests.log", 10),
        ("attempt.log", "agent.log", 30),
    ]


def test_steps_are_lines_of_a_file_as_they_happen_without_secrets(tmp_path):
    trajectory = Trajectory(session_id="s", agent="terminal", version="1")
    trajectory.on_step = LiveSteps(tmp_path / "attempt", Redactor({"KEY": "s3cret-value-1234"})).add
    trajectory.add("agent", "look", results=[(None, "KEY=s3cret-value-1234")])
    trajectory.add("agent", "done")
    text = (tmp_path / "attempt" / LiveSteps.FILE).read_text()
    assert [json.loads(line)["message"] for line in text.splitlines()] == ["look", "done"]
    assert "s3cret" not in text


def test_steps_that_cannot_be_written_do_not_end_the_attempt(tmp_path):
    (tmp_path / "file").write_text("")
    LiveSteps(tmp_path / "file", NOTHING).add({"message": "x"})

"""`proctor logs`: whose logs, which of them, how much, and safely on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.taking import take

from proctor.cli.logs import harmless
from proctor.cli.main import main
from proctor.model.trial import RunStatus
from proctor.settings import load_settings
from proctor.store.open import open_store
from proctor.trial.progress import LogFile
from proctor.trial.redact import Redactor


@pytest.fixture
def run(tmp_path, monkeypatch, store_rollouts):
    monkeypatch.chdir(tmp_path)
    info = store_rollouts(
        {("org/hello", "oracle"): [1.0, 0.0], ("org/hello", "nop"): [None], ("org/bye", "nop"): [0.0]},
        folder=True,
    )
    logs = Path(info.folder) / "trials/org__hello/0/logs"
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "oracle.txt").write_text("one\ntwo\nthree\n")
    (logs / "eval.log").write_text("judged")
    return info


def shown(capsys, *words: str) -> str:
    assert main(["logs", *words]) == 0
    return capsys.readouterr().out


@pytest.fixture
def capsys(capfd):
    """Bytes are written past Python's own text layer."""
    return capfd


def test_the_trials_are_listed_with_outcome_and_logs(run, capsys):
    lines = shown(capsys, "latest").splitlines()
    assert lines[0].split() == ["#", "outcome", "logs", "trial"]
    assert "oracle.txt 14 B, eval.log 6 B" in lines[1]
    assert "passed" in lines[1]
    assert "org/hello × oracle #1" in lines[1]
    data = json.loads(shown(capsys, "latest", "--json"))
    assert [each["index"] for each in data] == [0, 1, 2, 3]
    assert data[0]["logs"][0]["size_bytes"] == 14
    assert len(json.loads(shown(capsys, "latest", "0", "--json"))) == 1


@pytest.mark.parametrize("name", ["0", "org/hello/oracle#1", "hello/oracle#1", "org/hello × oracle #1"])
def test_a_trial_has_several_names(run, capsys, name):
    assert shown(capsys, "latest", name) == "==> oracle.txt <==\none\ntwo\nthree\n==> eval.log <==\njudged"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--log", "verifier"], "judged"),
        (["--log", "agent"], "one\ntwo\nthree\n"),
        (["--log", "oracle"], "one\ntwo\nthree\n"),
        (["--log", "oracle.txt", "--tail", "2"], "two\nthree\n"),
        (["--log", "agent", "--tail", "0"], ""),
        (["--log", "agent", "--tail", "99"], "one\ntwo\nthree\n"),
        (["--log", "verifier", "--follow"], "judged"),
    ],
)
def test_logs_and_lines_are_chosen(run, capsys, words, text):
    assert shown(capsys, "latest", "0", *words) == text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["latest", "bye#9"], "no trial named 'bye#9'"),
        (["latest", "hello"], "'hello' is the name of 3 trials: 0 (org/hello × oracle #1)"),
        (["latest", "0", "--log", "agnet"], "no log named 'agnet'; logs: oracle.txt, eval.log"),
        (["latest", "0", "--attempt", "4"], "attempt 4: no logs"),
        (["latest", "--follow"], "--follow needs a TRIAL"),
        (["nobody", "0"], "nobody"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_2(run, capsys, words, sentence):
    assert main(["logs", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_key_prefix_is_enough_when_it_is_unique(run, capsys):
    assert main(["logs", "latest", f"{3:064d}"]) == 0
    assert "empty" in capsys.readouterr().err


def test_a_run_folder_that_no_store_knows_will_do(run, capsys):
    with open_store(load_settings().store_url) as store:
        store.delete_run(run.id)
    assert shown(capsys, run.folder, "0", "--log", "verifier", "-f") == "judged"


def test_later_attempts_have_logs_of_their_own(run, capsys):
    second = Path(run.folder) / "trials/org__hello/0.attempt-2/logs"
    second.mkdir(parents=True)
    (second / "oracle.txt").write_text("again\n")
    assert shown(capsys, "latest", "0") == "again\n"
    assert "three" in shown(capsys, "latest", "0", "--attempt", "1")
    assert "(attempt 2)" in shown(capsys, "latest")


def test_a_link_instead_of_a_log_is_not_followed(run, capsys, tmp_path):
    (tmp_path / "secret").write_text("secret")
    folder = Path(run.folder) / "trials/org__hello/0/logs"
    (folder / "agent.txt").symlink_to(tmp_path / "secret")
    assert "secret" not in shown(capsys, "latest", "0")


def test_the_end_of_a_huge_log_is_found_without_reading_it(run, capsys):
    log = Path(run.folder) / "trials/org__hello/0/logs/oracle.txt"
    with log.open("wb") as file:
        file.truncate(20 << 30)  # a hole: reading it all would take minutes
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + b"x" * 100_000 + b"\nlast\n")
    assert shown(capsys, "latest", "0", "--log", "agent", "--tail", "1") == "last\n"
    assert len(shown(capsys, "latest", "0", "--log", "agent", "--tail", "2")) == 100_006


def test_control_codes_are_removed_for_a_terminal():
    assert harmless(b"\x1b[31mred\x1b[0m \x1b]0;title\x07ok\ttab\x08\xff") == "red ok\ttab��"
    assert harmless(b"10 %\r20 %\r100 %\r") == "100 %"


def test_a_terminal_gets_harmless_text_and_raw_bytes_only_when_asked(run):
    log = Path(run.folder) / "trials/org__hello/0/logs/oracle.txt"
    log.write_bytes(b"\x1b]0;owned\x07plain\x1b[31m\n")
    for words, expected in (([], b"plain\r\n"), (["--raw"], b"\x1b]0;owned\x07plain\x1b[31m\r\n")):
        assert on_terminal("logs", "latest", "0", "--log", "agent", *words) == expected


def on_terminal(*words: str) -> bytes:
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "proctor.cli.main", *words], stdout=theirs, stdin=subprocess.DEVNULL
    )
    os.close(theirs)
    found = b""
    try:
        while piece := os.read(ours, 4096):
            found += piece
    except OSError:
        pass
    os.close(ours)
    assert done.wait() == 0
    return found


def test_following_ends_when_the_attempt_has_and_misses_nothing(run, capsys):
    """The log outgrows its head while it is followed, and is closed in another thread."""
    with open_store(load_settings().store_url) as store:
        store.set_status(run.id, RunStatus.RUNNING)
        trial = list(store.planned(run.id))[2]
        take(store, run.id, worker="w", lease_s=600)
    folder = Path(run.folder) / f"trials/org__hello/{trial.index}/logs"
    folder.mkdir(parents=True)
    log = LogFile(folder / "agent.txt", Redactor({}), head_bytes=1000, tail_bytes=4000)
    lines = [f"line {number}\n".encode() for number in range(400)]
    log.write(lines[0])

    def work():
        for line in lines[1:]:
            log.write(line)
        log.close()
        with open_store(load_settings().store_url) as store:
            store.set_status(run.id, RunStatus.DONE)

    worker = threading.Thread(target=work)
    worker.start()
    found = shown(capsys, "latest", "2", "-f")
    worker.join()
    assert found.replace("==> agent.txt <==\n", "") == b"".join(lines).decode()


def test_what_left_no_log_shows_why_in_full(tmp_path, monkeypatch, store_rollouts, capsys):
    monkeypatch.chdir(tmp_path)
    info = store_rollouts({("org/hello", "nop"): ["image_error"]}, folder=True)
    folder = Path(info.folder) / "trials/org__hello/0/logs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "eval.log").write_bytes(b"")
    assert main(["logs", "latest", "0"]) == 0
    assert capsys.readouterr().err == "empty: eval.log\nno luck\n"

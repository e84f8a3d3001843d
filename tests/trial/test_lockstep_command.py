"""One run of a whole command, with real processes."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from proctor.errors import CommandFailedError, Interrupted, UsageError
from proctor.processes import all_processes
from proctor.trial.lockstep.command import Command, execute

PYTHON = sys.executable


def command(text: str, **more) -> Command:
    return Command(text=text, name=more.pop("name", text), **more)


def test_both_clocks_and_the_children_are_counted():
    burn = "import time\nwhile time.process_time() < 0.15: pass"
    found = execute(command(f"{PYTHON} -c '{burn}'; true"))
    assert found.exit_code == 0
    assert found.cpu_ns > 140_000_000
    assert found.wall_ns > 140_000_000
    assert found.peak_rss_bytes > 1 << 20
    assert found.cpu_ns == found.user_ns + found.system_ns
    waits = execute(command("sleep 0.2", shell=False))
    assert waits.wall_ns > 200_000_000
    assert waits.cpu_ns < waits.wall_ns / 2


def test_output_input_environment_and_folder_are_as_asked(tmp_path):
    out = tmp_path / "out"
    (tmp_path / "in").write_text("given")
    asked = command(
        "cat; echo $COLOUR; pwd; echo wrong >&2",
        stdin=str(tmp_path / "in"), output=str(out), env={"COLOUR": "red"}, cwd=str(tmp_path),
    )  # fmt: skip
    execute(asked)
    assert out.read_text() == f"givenred\n{tmp_path}\nwrong\n"


def test_without_a_shell_words_are_split_and_nothing_is_expanded(tmp_path):
    out = tmp_path / "out"
    execute(command("echo 'a b' $HOME", shell=False, output=str(out)))
    assert out.read_text() == "a b $HOME\n"


def test_a_pinned_command_has_one_cpu_and_we_have_ours_back(tmp_path):
    before, out = os.sched_getaffinity(0), tmp_path / "out"
    cpu = max(before)
    text = f"{PYTHON} -c 'import os; print(os.sched_getaffinity(0))'"
    execute(command(text, output=str(out)), cpu=cpu)
    assert out.read_text() == f"{{{cpu}}}\n"
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("exit 3", "ended with exit code 3 in run 1"),
        ("kill -9 $$", "was ended by signal SIGKILL"),
        ("no-such-program", "the shell did not find the program"),
    ],
)
def test_a_failure_says_how_it_ended_and_what_to_do(text, words):
    with pytest.raises(CommandFailedError, match="--ignore-failure") as caught:
        execute(command(text), doing="run 1")
    assert words in str(caught.value)
    assert execute(command(text, ignore_failure=True)).exit_code != 0


@pytest.mark.parametrize(
    "asked",
    [
        command("no-such-program", shell=False),
        command("'not closed", shell=False),
        command("true", cwd="/no/such/folder"),
        command("true", stdin="/no/such/file"),
        command("true", output="/no/such/file"),
    ],
)
def test_what_cannot_be_started_is_a_usage_error(asked):
    with pytest.raises(UsageError, match=r"no-such-program|not closed|/no/such"):
        execute(asked)


def test_an_interruption_ends_the_command_and_everything_it_started(monkeypatch):
    mark = f"{123_456 + os.getpid()}"
    real = os.waitid

    def interrupted(*_):
        started = threading.Event()
        while not started.is_set():  # until the child's child is there
            if sum(mark in _arguments(each.pid) for each in all_processes()) >= 2:
                started.set()
        raise Interrupted("stopped")

    monkeypatch.setattr(os, "waitid", interrupted)
    with pytest.raises(Interrupted):
        execute(command(f"sleep {mark} & sleep {mark}; true"))
    monkeypatch.setattr(os, "waitid", real)
    deadline = time.monotonic() + 10
    while left := [each for each in all_processes() if mark in _arguments(each.pid) and not each.gone]:
        assert time.monotonic() < deadline, left  # killed, but perhaps not dead yet
        time.sleep(0.01)


def _arguments(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""

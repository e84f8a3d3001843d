from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.tasks.archive import unpack
from proctor.tasks.read import read_task


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "task", "sums"]) == 0
    return tmp_path / "tasks/sums"


def test_a_new_task_reads_and_only_its_proof_is_missing(task, capsys):
    assert read_task(task).name == "sums"
    capsys.readouterr()
    assert main(["tasks", "check", "tasks"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "Not proven here: that the oracle passes and that doing nothing fails. `proctor vet tasks` finds out",
        "1 task: 0 with errors, 0 with warnings, 1 without",
    ]
    assert main(["tasks", "check", "tasks", "--strict"]) == 2


def test_what_is_proven_here_is_known(task, capsys, store_rollouts, monkeypatch):
    digest = read_task(task).digest
    ends = {("sums", "oracle"): [1.0], ("sums", "nop"): [0.0]}
    store_rollouts(ends)
    assert main(["tasks", "check", str(task)]) == 0
    assert "Not proven here" in capsys.readouterr().out
    from proctor.store.store import Store

    real = Store.recent

    def same_task(self, subject, *, limit=400):
        from msgspec.structs import replace

        return [
            (replace(trial, subject_digest=digest), end) for trial, end in real(self, subject, limit=limit)
        ]

    monkeypatch.setattr(Store, "recent", same_task)
    assert main(["tasks", "check", str(task)]) == 0
    assert capsys.readouterr().out == "1 task: 0 with errors, 0 with warnings, 1 without\n"
    assert main(["tasks", "check", str(task), "--strict"]) == 0


def test_an_error_has_its_place_its_hint_and_exit_code_2(task, capsys):
    (task / "task.toml").write_text("[agent]\ntimeout_sec = 'soon'\n")
    capsys.readouterr()
    assert main(["tasks", "check", str(task), "--json"]) == 2
    (document,) = json.loads(capsys.readouterr().out)
    assert not document["ok"]
    assert document["findings"][0]["place"].endswith("task.toml:2")
    assert main(["tasks", "check", str(task)]) == 2
    out = capsys.readouterr().out
    assert out.startswith("Errors\n  'timeout_sec' must be a number")
    assert "1 task: 1 with errors" in out
    assert main(["tasks", "check", "nowhere"]) == 2


def test_what_many_tasks_share_is_said_once_with_a_count_and_errors_come_first(task, capsys):
    set_of_tasks = task.parent
    for number in range(9):
        copy = set_of_tasks / "more" / f"sums-{number}"
        shutil.copytree(task, copy)
        (copy / "solution/solve.sh").unlink()
    (set_of_tasks / "more/sums-0/tests/test.sh").unlink()
    capsys.readouterr()
    assert main(["tasks", "check", "tasks"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Errors"
    assert lines.index("Errors") < lines.index("Warnings")
    assert sum("no solution/solve.sh" in line for line in lines) == 1
    assert "    … and 5 more tasks" in lines
    assert "doing nothing fails (9 of 10)" in lines[-2]
    assert lines[-1] == "10 tasks: 1 with errors, 8 with warnings, 1 without"
    assert main(["tasks", "check", "tasks", "--all"]) == 2
    assert "more tasks" not in capsys.readouterr().out
    assert main(["tasks", "check", "tasks", "--json"]) == 2
    documents = json.loads(capsys.readouterr().out)
    assert sum(len(each["findings"]) for each in documents) == 9


def test_a_packed_task_unpacks_to_the_same(task, tmp_path, capsys):
    assert main(["tasks", "pack", str(task), "out/sums.zip"]) == 0
    assert "packed sums: out/sums.zip" in capsys.readouterr().out
    again = read_task(unpack(tmp_path / "out/sums.zip", tmp_path / "unpacked"))
    assert again.digest == read_task(task).digest


def test_packing_overwrites_nothing_and_leaves_nothing_half_done(task, capsys):
    Path("there.zip").write_text("mine")
    assert main(["tasks", "pack", str(task), "there.zip"]) == 2
    assert Path("there.zip").read_text() == "mine"
    assert main(["tasks", "pack", str(task), str(task / "in.zip")]) == 2
    (task / "environment/link").symlink_to("/etc/hostname")
    assert main(["tasks", "pack", str(task), "x.zip"]) == 2
    assert not Path("x.zip").exists()
    (task / "environment/link").unlink()
    assert main(["tasks", "pack", str(task), "/proc/nowhere/x.zip"]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [("Sums!", "try 'sums'"), ("../x", "try 'x'"), ("", "is not a valid name"), ("a/b", "try 'a-b'")],
)
def test_a_name_that_will_not_do_is_refused(tmp_path, monkeypatch, capsys, name, said):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "task", name]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_task_is_left_alone(task, capsys):
    assert main(["new", "task", "sums"]) == 2
    assert "nothing was written" in capsys.readouterr().err

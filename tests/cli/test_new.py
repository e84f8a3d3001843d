"""`proctor new experiment` writes something that works at once, and never over something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.experiments.describe import info
from proctor.experiments.discover import find
from proctor.spec.load import load
from proctor.spec.sweep import points


@pytest.fixture(autouse=True)
def work_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*") if path.is_file() and path.suffix != ".pyc")


def test_three_files_are_written_and_the_next_commands_printed(capsys):
    assert main(["new", "experiment", "word_count"]) == 0
    assert files() == [
        "experiments.d/test_word_count.py",
        "experiments.d/word_count.py",
        "specs/word_count.yaml",
    ]
    out = capsys.readouterr().out
    for command in (
        "pytest experiments.d/test_word_count.py",
        "proctor list word_count --experiments experiments.d",
        "proctor run specs/word_count.yaml",
    ):
        assert command in out


def test_the_scaffold_passes_its_own_test(work_folder):
    assert main(["new", "experiment", "word_count", "--dir", "bench/mine", "--specs", "bench/specs"]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "bench/mine/test_word_count.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=work_folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_scaffolded_spec_loads_and_finds_its_experiment():
    assert main(["new", "experiment", "word_count", "--dir", "bench/mine"]) == 0
    spec = load(Path("specs/word_count.yaml"))
    (source,) = spec.sources
    found = find("word_count", [str(Path("specs", source))])
    assert found.cls.__name__ == "WordCount"
    assert [point["method"] for point in points(spec.experiments[0], info(found), spec.seed)] == [
        "counter",
        "loop",
    ]


@pytest.mark.parametrize("taken", ["experiments.d/mine.py", "specs/mine.yaml", "experiments.d/test_mine.py"])
def test_nothing_is_overwritten_and_nothing_else_written(capsys, taken):
    Path(taken).parent.mkdir()
    Path(taken).write_text("precious")
    assert main(["new", "experiment", "mine"]) == 2
    assert f"{taken} exists; nothing was written" in capsys.readouterr().err
    assert files() == [taken]
    assert Path(taken).read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Word-Count", "try 'word_count'"),
        ("../escape", "try 'escape'"),
        ("class", "is not a valid name"),
        ("9lives", "is not a valid name"),
        ("", "is not a valid name"),
        ("test_it", "are not searched for experiments"),
        ("conftest", "are not searched for experiments"),
        ("memory_db", "is already an experiment, at"),
        ("x" * 65, "is not a valid name"),
    ],
)
def test_a_name_that_would_not_work_is_refused(capsys, name, message):
    assert main(["new", "experiment", name]) == 2
    assert message in capsys.readouterr().err
    assert files() == []


def test_a_folder_that_cannot_be_written_leaves_nothing_behind(capsys):
    Path("specs").write_text("a file where the folder should be")
    assert main(["new", "experiment", "mine"]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert files() == ["specs"]

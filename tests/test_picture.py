"""`scripts/picture compare`: times, ids and measured numbers may differ, words and fields may not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts/picture"
READ_AT = 1_800_000_000.0


def picture(
    folder: Path, *, at: float, run: str, took: float, word: str = "passed", field: str = "reward"
) -> Path:
    documents = {
        "picture.json": {"world": "w", "read_at": at, "ended_at": at + 60},
        "runs.json": [{"id": run, "name": "study", "created_at": at - 100}],
        "figures.json": {"cpu_s": {}, "start_up_cpu_s": {"ls": took}},
        "executed/run.json": {"id": run, "wall_s": took, "took": f"{took} s", field: 1, "outcome": word},
        "read/show.json": {"written_at": at + 5, "p95": 0.25},
    }
    for name, document in documents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
    (folder / "read/show.txt").write_text("$ proctor show\nexit code 0\n2 passed, p95 250 ms\n")
    return folder


@pytest.fixture
def before(tmp_path):
    return picture(tmp_path / "before", at=READ_AT, run="20270101T000000-aaaaaa", took=1.25)


@pytest.fixture
def after(tmp_path):
    return {"folder": tmp_path / "after", "at": READ_AT + 999, "run": "20270202T000000-bbbbbb", "took": 22.5}


def compare(before: Path, after: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, "compare", before, after], capture_output=True, text=True, check=False
    )


def test_two_pictures_of_the_same_code_are_equal(before, after):
    done = compare(before, picture(**after))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "0 differ" in done.stdout


@pytest.mark.parametrize("change", [{"word": "failed"}, {"field": "score"}])
def test_a_word_and_a_field_that_changed_are_shown(before, after, change):
    done = compare(before, picture(**after, **change))
    assert done.returncode == 1
    (value,) = change.values()
    assert any(line.startswith("+") and value in line for line in done.stdout.splitlines())


def test_a_number_that_is_only_read_must_be_the_same(before, after):
    folder = picture(**after)
    (folder / "read/show.txt").write_text("$ proctor show\nexit code 0\n2 passed, p95 251 ms\n")
    assert "+2 passed, p95 251 ms" in compare(before, folder).stdout


def test_pictures_that_read_different_results_are_refused(before, after):
    folder = picture(**after)
    (folder / "picture.json").write_text(json.dumps({"world": "other", "read_at": 0, "ended_at": 0}))
    done = compare(before, folder)
    assert done.returncode == 2
    assert f"--like {before}" in done.stderr

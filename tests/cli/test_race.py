"""`proctor race` on a real sandbox: text, JSON, pages, and what resuming an ended race says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.errors import Exit


@pytest.fixture(autouse=True)
def spec_file(tmp_path: Path, make_task, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_task("one")
    path = tmp_path / "suite.toml"
    path.write_text('name = "suite"\n[[tasks]]\npath = "tasks"\nrollouts = 10\n')
    return path


@pytest.mark.needs("bubblewrap")
def test_a_race_is_shown_written_and_judged_again_by_resume(
    spec_file: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["race", "oracle", "nop", str(spec_file), "--host-root", "--html", "out/page.html"]
    assert main(words) == Exit.WORSE
    said = capsys.readouterr().out
    assert "nop is worse than oracle. Of 8 pairs that disagree it lost 8 and won 0." in said
    assert "The race stopped at pair 8 of 10" in said
    assert "This is too large" in said
    page = Path("out/page.html").read_text()
    assert "Evidence that the candidate is worse" in page
    assert "report.html" not in page
    assert main(["resume", "latest", "--json"]) == Exit.WORSE
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "regression"
    assert found["pairs"]["lost"] == 8
    assert found["rollouts"]["planned"] == 20
    assert main(["report", "latest"]) == Exit.OK
    assert main(["publish", "site"]) == Exit.OK
    (shown,) = Path("site").glob("runs/*/race.html")
    assert f"runs/{shown.parent.name}/race.html" in Path("site/index.html").read_text()


def test_bad_words_start_nothing(spec_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["race", "oracle", "nop"]) == Exit.USAGE
    assert "SPEC is missing" in capsys.readouterr().err
    assert main(["race", "oracle", "nobody", str(spec_file)]) == Exit.USAGE
    assert "candidate 'nobody' is neither" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()

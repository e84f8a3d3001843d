"""`proctor perf` as a shell sees it: exit codes, JSON, and what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.render.pages import checked

from proctor.cli.main import main
from proctor.errors import Exit
from proctor.runs.perf.scenario import DEFAULT

TASK = DEFAULT.parent / "word-count"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def scenario(tmp_path: Path, *lines: str) -> str:
    file = tmp_path / "scenario.yaml"
    file.write_text("".join(f"- {{task: {TASK}, {line}}}\n" for line in lines))
    return str(file)


def test_the_documented_command_passes_on_pretended_sandboxes(capsys: pytest.CaptureFixture[str]):
    options = (
        "--episodes 6 --workers 4 --timeout 180 --output-dir out/perf --strict-spec --compress --sandbox fake"
    )
    assert main(["perf", *options.split()]) == Exit.OK
    printed = capsys.readouterr().out
    assert "6 episodes, 0 not as expected" in printed
    assert "Pass: all 5 rules hold." in printed
    assert len(list(Path("out/perf").glob("perf-artifacts-*.zip"))) == 1
    (page,) = Path("out/perf").glob("perf-report-*.html")
    shown = checked(page.read_text())
    assert {link for link in shown.links if link.endswith((".svg", ".zip"))}
    assert all((page.parent / link).is_file() for link in shown.links), "a link leads to a file"
    text = " ".join(shown.text)
    assert "Pass: all 5 rules hold." in text
    for said in ("An episode", "Tasks and agents", "Growth", "The machine"):
        assert said in text


def test_a_failing_episode_means_exit_code_one_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = scenario(tmp_path, "agent: nop", "agent: oracle")
    assert main(["perf", "--episodes", "2", "--sandbox", "fake", "--scenario", file]) == Exit.WORSE
    printed = capsys.readouterr().out
    assert "failure: failed (1×)" in printed
    assert re.search(r"regression +failure_count == 0", printed)


def test_json_holds_the_summary_the_files_and_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = scenario(tmp_path, "agent: oracle")
    code = main(
        ["perf", "--episodes", "2", "--sandbox", "fake", "--scenario", file, "--json", "--strict-spec"]
    )
    assert code == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert found["summary"]["episodes"] == 2
    assert found["gate"]["verdict"] == "pass"
    assert found["problems"] == []
    assert all(Path(name).is_file() for name in found["files"])


def test_rules_of_a_file_replace_the_usual_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rules = tmp_path / "gate.yaml"
    rules.write_text("- failure_count <= 1\n- growth.artifact_bytes == linear\n")
    file = scenario(tmp_path, "agent: nop", "agent: oracle", "agent: oracle")
    words = ["perf", "--episodes", "3", "--sandbox", "fake", "--scenario", file, "--gate", str(rules)]
    code = main(words)
    printed = capsys.readouterr().out
    assert re.search(r"pass +failure_count <= 1", printed)
    assert "max_wall_clock_s" not in printed
    assert code == Exit.WORSE
    assert "growth.artifact_bytes is unknown" in printed


@pytest.mark.parametrize(
    "words",
    [
        ["--episodes", "0"],
        ["--workers", "0"],
        ["--timeout", "0"],
        ["--sandbox", "bubblewarp"],
        ["--scenario", "nowhere.yaml"],
        ["--gate", "nowhere.yaml", "--sandbox", "fake"],
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    assert main(["perf", *words]) == Exit.USAGE
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "deliverables").exists()

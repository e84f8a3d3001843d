from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.cli.main import main


@pytest.fixture
def agents(store_rollouts):
    ends = {
        ("org/a", "x"): ["passed", "passed", "failed"],
        ("org/b", "x"): ["failed", "passed", "sandbox_error"],
    }
    for number in range(9):
        store_rollouts(ends, name="study", run_id=f"2026010{number + 1}T000000-aaaaaa")


def test_a_series_is_told_in_a_sentence_a_line_of_bars_and_a_table(agents, capsys):
    assert main(["history", "study"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("pass_rate of study: no lasting change in 9 runs")
    assert "x: pass rate" in out
    assert "20260109T000000-aaaaaa" in out
    assert "org/a: pass rate" in out
    assert "9 runs, 9 in the statistics." in out


def test_json_is_one_document(agents, capsys):
    assert main(["history", "study", "--json", "--last", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["series"], len(found["runs"])) == ("study", 3)


def test_the_page_is_written_and_its_place_is_told(agents, capsys, tmp_path):
    page = tmp_path / "new" / "history.html"
    assert main(["history", "study", "--point", "org/", "--html", str(page)]) == 0
    assert f"written: {page}" in capsys.readouterr().out
    assert "<svg" in page.read_text()


def test_runs_lead_to_their_reports(store_rollouts, capsys, tmp_path):
    run_id = "20260101T000000-aaaaaa"
    store_rollouts({("org/a", "x"): ["passed"]}, name="study", run_id=run_id, folder=True)
    page = tmp_path / "history.html"
    assert main(["history", "study", "--html", str(page)]) == 0
    (lead,) = re.findall(r'href="([^"#]+)"', page.read_text())
    assert lead.endswith(f"{run_id}/report.html")
    assert (tmp_path / lead).is_file()
    capsys.readouterr()
    assert main(["history", "study", "--json"]) == 0
    assert "folder" not in json.loads(capsys.readouterr().out)["runs"][0]


def test_an_unknown_series_is_a_sentence_and_exit_code_2(agents, capsys):
    assert main(["history", "stuff"]) == 2
    assert "proctor: no run named 'stuff'" in capsys.readouterr().err


def test_a_broken_run_is_told_above_the_table(store_rollouts, capsys):
    store_rollouts({("org/a", "x"): ["passed"]}, run_id="20260101T000000-aaaaaa")
    store_rollouts({("org/a", "x"): ["sandbox_error"]}, run_id="20260102T000000-aaaaaa")
    assert main(["history", "study"]) == 0
    out = capsys.readouterr().out
    assert (
        "! left out of the statistics: 20260102T000000-aaaaaa: infrastructure or provider broke 1 of 1" in out
    )


def test_a_short_history_needs_nothing_heavy(store_rollouts, tmp_path):
    store_rollouts({("org/a", "x"): ["passed"]}, run_id="20260101T000000-aaaaaa")
    probe = (
        "import sys; from proctor.cli.main import main; code = main(sys.argv[1:]); "
        "print(sorted(set(sys.modules) & {'numpy', 'asyncio', 'sqlalchemy', 'rich'}), file=sys.stderr); "
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, "history", "study"],
        cwd=Path(tmp_path),
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (0, "[]")

"""`proctor time`: commands and statements, alone and compared, with real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.verdicts.compare.foreign import read_file

PYTHON = sys.executable


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def measured(capsys, *words: str, code: int | None = 0) -> dict:
    """What `--json` says; whatever its verdict where `code` is None."""
    ended = main(["time", *words, "--json"])
    assert ended == code if code is not None else ended in {0, 1, 3}
    return json.loads(capsys.readouterr().out)


def test_one_command_is_described_on_both_clocks(capsys):
    data = measured(capsys, "-r", "3", "-w", "0", "-n", "quick", "true")
    (result,) = data["results"]
    assert (result["command"], result["name"]) == ("true", "quick")
    assert len(result["times"]) == len(result["cpu_times"]) == 3
    assert result["min"] <= result["median"] <= result["max"]
    assert result["interval"][0] <= result["mean"] <= result["interval"][1]
    assert data["comparisons"] == []
    assert main(["time", "-r", "1", "true"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^A wall .* 1$", shown, re.MULTILINE)
    assert re.search(r"^A CPU .* 1$", shown, re.MULTILINE)


def test_runs_warm_ups_setup_prepare_and_cleanup_happen_as_often_as_asked(folder):
    words = [
        "-w",
        "2",
        "-r",
        "5",
        "--setup",
        "echo s >> log",
        "-p",
        "echo p >> log",
        "--cleanup",
        "echo c >> log",
    ]
    assert main(["time", *words, "echo a >> log", "echo b >> log"]) in {0, 1, 3}
    lines = (folder / "log").read_text().split()
    assert (lines[0], lines[-1]) == ("s", "c")
    assert {each: lines.count(each) for each in "abspc"} == {"a": 7, "b": 7, "s": 1, "p": 14, "c": 1}
    assert all(lines[at - 1] == "p" for at, each in enumerate(lines) if each in "ab")


def test_a_much_slower_command_is_slower_and_a_much_faster_one_faster(capsys):
    data = measured(capsys, "sleep 0.03", "sleep 0.09", "true", "--max-pairs", "12", code=1)
    assert [each["verdict"] for each in data["comparisons"]] == ["slower", "faster"]
    assert data["comparisons"][0]["clock"] == "wall"
    assert data["comparisons"][0]["ratio"] > 1.5
    assert data["comparisons"][0]["other_clock"]["clock"] == "cpu"
    assert main(["time", "sleep 0.06", "true", "-r", "6"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("faster: B is ")
    assert "  CPU time " in shown
    assert "  elapsed time -" in shown
    assert "  A  sleep 0.06\n  B  true\n" in shown


def test_the_order_is_balanced_and_shuffled(capsys):
    main(["time", "true", "true", "--max-pairs", "6", "--json"])
    orders = json.loads(capsys.readouterr().out)["comparisons"][0]["orders"]
    assert len(orders) >= 6
    plain = [order for order in orders if "c" not in order]
    rounds = [order[at : at + 2] for order in plain for at in range(0, len(order), 2)]
    assert set(rounds) == {"ab", "ba"}
    assert abs(rounds.count("ab") - rounds.count("ba")) <= len(plain)
    assert any("c" in order for order in orders)  # the first command against itself


def test_every_run_of_a_command_has_a_layout_of_its_own_and_it_is_kept(capsys, folder):
    text = "env | grep ^PROCTOR_PADDING | cut -d= -f2 | tr -d '\\n' | wc -c >> sizes"
    data = measured(capsys, "-w", "0", "-r", "8", text, f"{text} # a longer one", code=None)
    sizes = sorted(map(int, (folder / "sizes").read_text().split()))
    drawn = [layout["env_bytes"] for result in data["results"] for layout in result["layouts"]]
    assert sizes == sorted(drawn)
    assert len(set(drawn)) > 12
    pairs = data["comparisons"][0]["layouts"]
    assert [sorted(pair) for pair in pairs] == [["a", "b"]] * 8
    assert sorted(layout["env_bytes"] for pair in pairs for side in "ab" for layout in pair[side]) == sizes


def test_a_command_against_itself_is_never_slower_or_faster(capsys, folder):
    """Every other run computes more: a difference, and none of the command."""
    text = f"""{PYTHON} -c "
import os, time
again = os.path.exists('mark')
os.remove('mark') if again else open('mark', 'w').close()
while time.process_time() < (0.3 if again else 0.03): pass
" """
    data = measured(capsys, "-w", "0", "-r", "6", text, text, code=None)
    (found,) = data["comparisons"]
    assert found["identical"]
    assert found["verdict"] in {"same", "inconclusive", "same computing"}


def test_the_file_is_one_that_compare_reads(capsys, folder):
    assert main(["time", "-r", "6", "true", "--export", "a.json"]) == 0
    (point,) = read_file(folder / "a.json").points
    assert point.name == "true"
    assert len(point.samples["duration_s"]) == 6
    assert main(["compare", "a.json", "a.json"]) in {0, 3}


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["exit 3"], 1, "'exit 3' ended with exit code 3 in warm-up 1"),
        (["-n", "mine", "no-such-thing"], 1, "command 'mine' ended with exit code 127"),
        (["true", "-p", "false"], 1, "in --prepare"),
        ([" "], 2, "a command is empty"),
        (["true", "-n", "a", "-n", "b"], 2, "--name is given 2 times for 1 commands"),
        (["true", "true", "-r", "3"], 2, "needs --runs 4 or more"),
        (["true", "--env", "nothing"], 2, "not NAME=VALUE"),
        (["true", "--cwd", "nowhere"], 2, "there is no such folder"),
        (["true", "--input", "nothing"], 2, "there is no such file"),
        (["true", "--output", "no/where"], 2, "in a folder that exists"),
        (["true", "--export", "no/where"], 2, "there is no folder no"),
        (["-N", "echo 'x"], 2, "cannot be split into words"),
        (["-N", "no-such-thing"], 2, "No such file"),
        (["--python", "x ="], 2, "statement 'x =' is not valid Python"),
        (["-s", "import", "1"], 2, "setup 'import' is not valid Python"),
        (["--python", "1", "-N"], 2, "--no-shell is for commands"),
        (["--python", "nobody"], 1, "name 'nobody' is not defined"),
        (["true", "--margin", "x"], 2, "not a share"),
        ([], 2, "COMMAND... is missing"),
    ],
)
def test_a_mistake_is_a_sentence_with_its_exit_code(capsys, words, code, sentence):
    assert main(["time", *words]) == code
    assert sentence in capsys.readouterr().err


def test_a_failure_can_be_ignored_and_is_still_told(capsys):
    assert main(["time", "-i", "-r", "2", "exit 3"]) == 0
    assert "2 runs ended with an exit code other than 0" in capsys.readouterr().out


def test_output_can_be_seen_or_kept(capfd, folder):
    assert main(["time", "-r", "1", "-w", "0", "echo seen", "--output", "inherit"]) == 0
    assert "seen\n" in capfd.readouterr().out
    (folder / "kept0").write_text("in")
    words = ["--output", "kept", "--env", "C=3", "--input", "kept0", "--pin", "--cwd", "."]
    assert main(["time", "-r", "2", "-w", "0", "cat; echo $C", *words]) == 0
    assert (folder / "kept").read_text() == "in3\nin3\n"


def test_a_budget_ends_the_measurement(capsys):
    data = measured(capsys, "sleep 0.05", "--budget-s", "0.2s")
    assert 1 <= len(data["results"][0]["times"]) < 10


def test_ctrl_c_ends_every_child_and_prints_what_is_known(folder):
    script = "echo x >> ran; sleep 0.01; test $(wc -l < ran) -lt 12 || { echo $$ > pid; exec sleep 777; }"
    process = subprocess.Popen(
        [PYTHON, "-m", "proctor.cli.main", "time", "-w", "0", "-r", "100", script, script, "-n", "A1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (Path("pid").exists() and Path("pid").read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; no process is left" in err
    assert "A wall" in out
    assert re.search(r"\b(against|than|and|as) A\b", out)
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path("pid").read_text()), 0)


def test_one_statement_is_timed_as_timeit_would(capsys, folder):
    (folder / "mine.py").write_text("numbers = list(range(200))")
    data = measured(capsys, "-s", "from mine import numbers", "sum(numbers)", "-r", "2")
    assert data["mode"] == "statement"
    (result,) = data["results"]
    assert len(result["times"]) == 4
    assert 1e-8 < result["median"] < 1e-3
    assert data["number"] >= 2
    assert main(["time", "--python", "-r", "2", "sum(range(99))"]) == 0
    assert "times are of one execution" in capsys.readouterr().out


def test_statements_are_compared_in_pairs(capsys):
    words = ["-s", "x = list(range(300))", "sorted(x)", "sorted(x * 4)", "x[0]", "--max-pairs", "6"]
    assert main(["time", *words, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [each["verdict"] for each in data["comparisons"]] == ["slower", "faster"]
    assert [each["name"] for each in data["comparisons"]] == ["sorted(x * 4)", "x[0]"]
    assert len(data["results"]) == 3
    assert main(["time", "-s", "", "sum(range(300))", "sum(range(900))", "--max-pairs", "6"]) == 1
    assert capsys.readouterr().out.startswith("slower: B is ")


def test_a_page_has_every_time_drawn(capsys, folder):
    assert main(["time", "-r", "6", "true", "sleep 0.03", "--html", "out/page.html"]) == 1
    page = (folder / "out" / "page.html").read_text()
    assert page.count('<svg class="chart"') == 1
    assert page.count('class="forest"') == 1
    assert "slower: B is " in page.replace("\u00a0", " ")
    assert main(["time", "-r", "2", "true", "--html", "one.html"]) == 0
    assert "true takes " in capsys.readouterr().out
    assert (folder / "one.html").read_text().count('<svg class="chart"') == 1

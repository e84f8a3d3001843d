from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.analysis.lockstep import Verdict
from proctor.cli import ab, selftest
from proctor.cli.main import main
from proctor.cli.table import print_document
from proctor.engine.ab import Asked, Progress
from proctor.engine.ab_document import comparison
from proctor.engine.ab_file import read
from proctor.engine.ab_run import Comparison
from proctor.errors import Exit, Interrupted
from proctor.processes import marked

RECORDED = Path(__file__).parent.parent / "data" / "lockstep"
EXPERIMENT = """
from mylib import work
from proctor import Experiment, register_experiment


@register_experiment("counted")
class Counted(Experiment):
    def __init__(self, n: int = 10, hang: bool = False):
        self.n = n
        self.hang = hang

    def execute_once(self, context):
        if self.hang:
            import time

            time.sleep(1000)
        work(self.n)
        return {}
"""


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    (root / "experiments").mkdir(parents=True)
    (root / "src" / "mylib").mkdir(parents=True)
    (root / "src" / "mylib" / "__init__.py").write_text("def work(n):\n    return sum(range(n))\n")
    (root / "experiments" / "counted.py").write_text(EXPERIMENT)
    (root / "spec.yaml").write_text("experiment: counted\ntimeout_s: 30\n")
    git(root, "init", "-q", ".")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    monkeypatch.chdir(root)
    monkeypatch.setattr("proctor.trial.lockstep.measure.KEPT", 20)
    return root


def proctor_ab(*arguments: str) -> int:
    return main(["ab", "spec.yaml", "--experiments", "experiments", "--pairs", "4", *arguments])


def recording(name: str, tmp_path: Path) -> Path:
    import gzip

    path = tmp_path / f"{name}.json"
    path.write_bytes(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    return path


def example(name: str, tmp_path: Path) -> Comparison:
    return read(recording(name, tmp_path))


@pytest.mark.needs("git")
def test_a_slower_working_tree_fails_the_gate_and_everything_is_saved(project, capsys):
    (project / "src" / "mylib" / "__init__.py").write_text("def work(n):\n    return sum(range(40 * n))\n")
    code = proctor_ab("--json", "--output", "out.json")
    answer = json.loads(capsys.readouterr().out)
    assert code == Exit.WORSE == answer["exit_code"]
    point = answer["points"][0]
    assert (answer["verdict"], point["confirmed"]) == ("slower", True)
    assert point["change"] > 0.2
    assert answer["a"].startswith("HEAD (")
    assert answer["b"] == "."
    saved = read(project / "out.json")
    assert saved.verdict is Verdict.SLOWER
    assert len(saved.results[0].pairs) == len(point["log_ratios"])
    assert git(project, "worktree", "list").count("\n") == 1


@pytest.mark.needs("git")
def test_parameter_sets_are_compared_on_one_version_of_the_code(project, capsys):
    code = proctor_ab("--a", "params:n=400", "--b", "params:n=10", "--no-confirm", "--time-budget", "60s")
    said = capsys.readouterr().out
    assert code == Exit.OK
    assert said.startswith("faster: B is ")
    assert re.search(r"A +\. n=400", said)
    assert "saved " in said


@pytest.mark.needs("git")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--a", "no-such-branch"], "'no-such-branch' is not a revision"),
        (["--b", "params:m=3"], "'m' is not a parameter"),
        (["--a", "path:nowhere"], "nowhere is not a folder"),
        (["--margin", "many"], "'many' is not a share"),
        (["--time-budget", "soon"], "'soon' is not a time"),
        (["--pairs", "2"], "expected a whole number from 4 to 2000, found 2"),
        (["--set", "experiment=coumted"], "counted"),
    ],
)
def test_bad_input_is_exit_2_and_says_what_is_wrong(project, capsys, arguments, said):
    assert proctor_ab(*arguments) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_neither_a_spec_nor_a_saved_comparison_is_bad_input(capsys):
    assert main(["ab"]) == Exit.USAGE
    assert "--replay" in capsys.readouterr().err


@pytest.mark.needs("git")
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_a_signal_ends_it_and_leaves_no_process_and_no_worktree(project, monkeypatch, signum, code):
    mark = f"{os.getpid()}-{signum}"
    monkeypatch.setenv("AB_TEST", mark)
    command = [sys.executable, "-m", "proctor.cli.main", "ab", "spec.yaml", "--experiments", "experiments"]
    running = subprocess.Popen([*command, "--set", "params.hang=true"], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not any(
        each.pid != running.pid and each.parent == running.pid for each in marked(f"AB_TEST={mark}")
    ):
        assert time.monotonic() < deadline
        assert running.poll() is None
    running.send_signal(signum)
    said = running.communicate(timeout=30)[1]
    assert running.returncode == code
    assert "no verdict" in said
    assert marked(f"AB_TEST={mark}") == []
    assert git(project, "worktree", "list").count("\n") == 1


def test_a_recorded_slowdown_is_judged_again_without_measuring(tmp_path, capsys):
    code = main(["ab", "--replay", str(recording("slower-5-sort", tmp_path)), "--pairs", "20"])
    said = capsys.readouterr().out
    assert code == Exit.WORSE
    assert said.startswith("slower: B is ")
    assert "CPU      +" in said
    assert "elapsed  +" in said
    assert "A/A      passed" in said


def test_a_replay_takes_another_margin(tmp_path, capsys):
    path = str(recording("slower-5-sort", tmp_path))
    assert main(["ab", "--replay", path, "--margin", "30%", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["points"][0]["margin"] == pytest.approx(0.3)


def test_identical_code_is_exit_0_and_sleeping_code_says_which_clock_judged(tmp_path, capsys):
    assert main(["ab", "--replay", str(recording("sleeping", tmp_path))]) == Exit.OK
    said = capsys.readouterr().out
    assert "elapsed  " in said
    assert "without waiting for other programs" in said
    assert "±3.0%" in said


def test_help_names_every_kind_of_side(capsys):
    assert main(["ab", "--help"]) == Exit.OK
    said = capsys.readouterr().out
    for kind in ("HEAD~1", "path:DIR", "python:PATH", "params:n=10"):
        assert kind in said


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("0.02", 0.02), ("0.5 %", 0.005)])
def test_shares_are_read(text, share):
    assert ab.Share().convert(text, None, None) == pytest.approx(share)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("1h", 3600)])
def test_times_are_read(text, seconds):
    assert ab.Duration().convert(text, None, None) == seconds


def judged(tmp_path: Path, name: str = "identical-sort", **changes: object) -> Comparison:
    """A recorded comparison whose finding is changed."""
    before = example(name, tmp_path)
    result = before.results[0]
    return replace(before, results=(replace(result, finding=replace(result.finding, **changes)),))


@pytest.mark.parametrize(
    ("changes", "said", "code"),
    [
        ({"verdict": Verdict.SMALL, "change": 0.004}, "small: B is 0.4% slower than A", Exit.OK),
        ({"verdict": Verdict.SAME}, "same: B differs from A by less than 1.0%", Exit.OK),
        (
            {"verdict": Verdict.SAME_COMPUTING},
            "same computing; waiting not judged: B computes as much as A",
            Exit.INCONCLUSIVE,
        ),
        ({"verdict": Verdict.FASTER, "change": -0.1}, "faster: B is 10.0% faster than A", Exit.OK),
        (
            {"verdict": Verdict.INCONCLUSIVE, "pairs_needed": 31},
            "it needs about 11 more pairs",
            Exit.INCONCLUSIVE,
        ),
        ({"verdict": Verdict.INCONCLUSIVE, "pairs_needed": None}, "no number of pairs", Exit.INCONCLUSIVE),
        (
            {"verdict": Verdict.INCONCLUSIVE, "reason": "no verdict: because"},
            "no verdict: because",
            Exit.INCONCLUSIVE,
        ),
        (
            {"verdict": Verdict.INCONCLUSIVE, "reason": "late", "pairs_needed": 30},
            "; late; it needs",
            Exit.INCONCLUSIVE,
        ),
    ],
)
def test_the_verdict_comes_first_in_one_sentence(tmp_path, capsys, changes, said, code):
    found = judged(tmp_path, **changes)
    print_document(comparison(found))
    assert said in capsys.readouterr().out.splitlines()[0]
    assert ab.exit_code(found) == code


def test_a_sweep_has_one_row_per_point_and_one_sentence_for_all(tmp_path, capsys):
    slower, same = (example(name, tmp_path).results[0] for name in ("slower-5-sort", "identical-sort"))
    doubtful = replace(same, finding=replace(same.finding, verdict=Verdict.INCONCLUSIVE, reason="too late"))
    found = Comparison(
        name="s", a="x", b="y", asked=Asked(), results=(slower, same, doubtful), notes=("look",)
    )
    print_document(comparison(found))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("slower: 3 points, 1 slower")
    assert sum("workload(function=sort)" in line for line in lines) == 4
    assert any("too late" in line for line in lines)
    assert "! look" in lines
    print_document(comparison(replace(found, results=(slower, slower))))
    assert capsys.readouterr().out.startswith("slower at all 2 points")


def test_an_unconfirmed_difference_and_a_failed_check_are_printed(tmp_path, capsys):
    found = judged(tmp_path)
    result = found.results[0]
    result = replace(result, confirmed=False, check=replace(result.check, passed=False))
    print_document(comparison(replace(found, results=(result,))))
    said = capsys.readouterr().out
    assert "not confirmed by" in said
    assert re.search(r"A/A +FAILED", said)


def test_progress_is_one_line_on_a_terminal_and_silent_elsewhere(monkeypatch, capsys):
    progress = Progress(point=1, points=3, label="e", pairs=4, most=20, change=0.02)
    with ab.progress_line(quiet=False) as tell:
        tell(progress)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with ab.progress_line(quiet=False) as tell:
        tell(progress)
        tell(replace(progress, points=1, confirming=True, change=None))
    said = capsys.readouterr().err
    assert "point 2/3  e  pair 5/20  +2.0%" in said
    assert "e  confirming 5/20" in said
    assert said.endswith("\r\x1b[2K")


def test_a_second_signal_cannot_disturb_the_cleaning_up():
    before = signal.getsignal(signal.SIGINT)
    during = []

    def work() -> None:
        with ab.stopping():
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                during.append(signal.getsignal(signal.SIGTERM))

    with pytest.raises(Interrupted):
        work()
    assert during == [signal.SIG_IGN]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("same", "slower", "code"),
    [
        (Verdict.SAME, Verdict.SLOWER, Exit.OK),
        (Verdict.INCONCLUSIVE, Verdict.SLOWER, Exit.OK),
        (Verdict.SLOWER, Verdict.SLOWER, Exit.WORSE),
        (Verdict.SAME, Verdict.SAME, Exit.WORSE),
        (Verdict.SAME, Verdict.FASTER, Exit.WORSE),
        (Verdict.SAME, Verdict.INCONCLUSIVE, Exit.INCONCLUSIVE),
        (Verdict.SAME, Verdict.SMALL, Exit.INCONCLUSIVE),
    ],
)
def test_a_selftest_passes_when_both_comparisons_come_out_right(tmp_path, same, slower, code):
    assert selftest.judge(judged(tmp_path, verdict=same), judged(tmp_path, verdict=slower)) == code


@pytest.mark.needs("git")
def test_a_selftest_slows_the_users_own_experiment_down(project, capsys):
    arguments = ["--experiments", "experiments", "--slow", "60%", "--pairs", "4", "--margin", "25%"]
    assert main(["selftest", "spec.yaml", *arguments]) == Exit.OK
    said = capsys.readouterr().out
    assert said.startswith("the gate works here")
    assert "60.0% slower   slower: B is" in said
    assert "both sides" not in said


@pytest.mark.needs("git")
def test_a_selftest_answers_in_json(project, capsys, monkeypatch):
    found = iter([judged(project.parent), judged(project.parent, "slower-5-sort")])
    monkeypatch.setattr("proctor.engine.ab_run.run", lambda *_, **__: next(found))
    assert (
        main(["selftest", "spec.yaml", "--experiments", "experiments", "--json", "--time-budget", "9"])
        == Exit.OK
    )
    answer = json.loads(capsys.readouterr().out)
    assert answer["works"] is True
    assert answer["slower"]["verdict"] == "slower"
    assert answer["same"]["verdict"] == "same"


def test_a_page_shows_both_sides_of_every_pair(tmp_path, capsys):
    (tmp_path / "ab.json").write_bytes(gzip.decompress((RECORDED / "slower-5-sort.json.gz").read_bytes()))
    page = tmp_path / "out" / "page.html"
    code = main(["ab", "--replay", str(tmp_path / "ab.json"), "--html", str(page)])
    assert code == Exit.WORSE
    assert f"written: {page}" in capsys.readouterr().out
    shown = page.read_text()
    assert shown.count('<svg class="chart"') == 1
    assert shown.count('class="forest"') == 1
    assert "A/A" in shown
    assert '<span class="badge bad">' in shown


def test_until_settled_needs_no_number_of_pairs(capsys: pytest.CaptureFixture[str]):
    assert main(["ab", "spec.yaml", "--until-settled", "--pairs", "40"]) == Exit.USAGE
    assert "cannot be combined with --pairs" in capsys.readouterr().err
    recorded = str(RECORDED / "slower-5-json.json.gz")
    assert main(["ab", "--until-settled", "--replay", recorded]) == Exit.USAGE
    assert "cannot be combined with --replay" in capsys.readouterr().err


def test_until_settled_measures_without_a_planned_end(project: Path, capsys: pytest.CaptureFixture[str]):
    sides = ["--a", "params:n=10", "--b", "params:n=4000"]
    words = ["ab", "spec.yaml", "--experiments", "experiments", *sides, "--until-settled", "--json"]
    assert main([*words, "--time-budget", "60s", "--no-confirm"]) == Exit.WORSE
    found = json.loads(capsys.readouterr().out)
    assert found["asked"]["rules"]["open_ended"] is True
    assert found["asked"]["time_budget_s"] == 60.0

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from proctor.cli.main import main
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.render.reporters import write_reports
from proctor.runfolder.read import RunData
from proctor.runfolder.write import RunFolder
from proctor.settings import load_settings
from proctor.store.open import open_store


def store_run(
    run_id: str,
    scale: float,
    *,
    at: float,
    code: str = "v1",
    points: int = 3,
    host: str = "h",
    fail: int = -1,
) -> None:
    generator = np.random.default_rng(int(at))
    trials, attempts = [], []
    for index in range(points):
        params = {"n": index}
        key = trial_key(subject_digest=code, params=params)
        trials.append(
            PlannedTrial(
                key=key,
                index=index,
                kind="experiment",
                subject="sort",
                subject_digest=code,
                body=0,
                params=params,
            )
        )
        rows = tuple({"duration_s": float(v)} for v in scale * np.exp(generator.normal(0, 0.005, 9)))
        outcome = Outcome.FAILED if index == fail else Outcome.PASSED
        attempts.append(
            AttemptRecord(key=key, number=1, outcome=outcome, started_at=at, ended_at=at + 1, iterations=rows)
        )
    info = RunInfo(
        id=run_id,
        name="sorting",
        kind="experiment",
        status=RunStatus.DONE,
        created_at=at,
        seed=0,
        total=points,
        environment={"hostname": host},
    )
    with open_store(load_settings().store_url) as store:
        store.import_run(info, trials, [(record, True) for record in attempts])


def hyperfine(path: Path, scale: float, name: str = "sort") -> str:
    times = (scale * np.exp(np.random.default_rng(1).normal(0, 0.01, 10))).tolist()
    path.write_text(json.dumps({"results": [{"command": name, "times": times}]}))
    return str(path)


def test_the_verdict_comes_first_and_the_exit_code_follows_it(capsys):
    store_run("run-1", 1.0, at=1)
    store_run("run-2", 2.0, at=2, code="v2")
    assert main(["compare", "latest~1", "latest"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Worse: 3 of 3 points changed by 5.0 % or more in duration_s")
    assert lines[1:3] == ["  A  sorting run-1", "  B  sorting run-2"]
    assert any(line.startswith("n  ") and line.endswith("verdict") for line in lines)
    assert any(line.startswith("1 ") and line.endswith("worse") for line in lines)
    assert "rarely prove changes below" in lines[-1]
    assert main(["compare", "run-2", "run-1"]) == 0
    assert capsys.readouterr().out.startswith("Better")


def test_what_the_data_cannot_exclude_at_the_margin_is_inconclusive(capsys):
    store_run("run-1", 1.0, at=1)
    store_run("run-2", 1.0, at=2)
    assert main(["compare", "run-1", "run-2"]) == 3
    assert capsys.readouterr().out.startswith("Inconclusive: 3 of 3 points could be worse by more than 5.0 %")
    assert main(["compare", "run-1", "run-2", "--margin", "50%"]) == 0
    assert capsys.readouterr().out.startswith("No worse")


def test_earlier_runs_of_the_same_code_tell_the_noise(capsys):
    for number in range(8):
        store_run(f"run-{number}", 1.0 + 0.01 * (number % 3), at=number)
    store_run("other-host", 3.0, at=20, host="elsewhere")
    store_run("new", 1.08, at=30, code="v2")
    assert main(["compare", "run-7", "new"]) == 1
    out = capsys.readouterr().out
    assert "from 7 earlier runs of the same code" in out
    store_run("single-1", 1.0, at=40, code="v9")
    assert main(["compare", "single-1", "new"]) == 3
    assert "default: no earlier runs" in capsys.readouterr().out


def test_json_has_the_whole_comparison(capsys):
    store_run("run-1", 1.0, at=1)
    store_run("run-2", 1.0, at=2, fail=1, points=4)
    assert main(["compare", "run-1", "run-2", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "worse"
    assert found["exit_code"] == 1
    assert found["failures"] == [{"name": "sort(n=1)", "a": "passed", "b": "failed", "new": True}]
    assert found["only_b"] == ["sort(n=3)"]
    assert [point["name"] for point in found["metrics"][0]["points"]] == ["sort(n=0)", "sort(n=2)"]


def test_failed_and_unmatched_points_and_differing_machines_are_printed(capsys):
    store_run("run-1", 1.0, at=1, points=14)
    store_run("run-2", 1.0, at=2, fail=1, points=2, host="other")
    main(["compare", "run-1", "run-2"])
    out = capsys.readouterr().out
    assert "! machine differs: host h → other" in out
    assert "Not compared: no result on one side" in out
    assert "only in A (12)  sort(n=2), sort(n=3)" in out


def test_a_run_folder_compares_with_a_stored_run(tmp_path, capsys):
    store_run("run-1", 1.0, at=1)
    with open_store(load_settings().store_url) as store:
        data = RunData.from_store(store, "run-1")
    folder = RunFolder(tmp_path / "out")
    folder.begin(data.info, Plan(trials=tuple(trial.planned for trial in data.trials)))
    folder.finish(data, write_reports)
    assert main(["compare", "run-1", str(tmp_path / "out"), "--margin", "50%"]) == 0
    result = next((tmp_path / "out" / "trials").rglob("result.json"))
    assert main(["compare", str(tmp_path / "out"), str(result), "--margin", "50%"]) == 0
    capsys.readouterr()


def test_files_of_other_tools_are_compared_without_a_store(tmp_path, capsys):
    a, b = hyperfine(tmp_path / "a.json", 1.0), hyperfine(tmp_path / "b.json", 1.6)
    assert main(["compare", a, b]) == 1
    assert capsys.readouterr().out.startswith("Worse: sort changed by 5.0 % or more in duration_s, B/A 1.6")
    assert not Path(load_settings().store_url).exists()


def test_names_from_strangers_cannot_steer_the_terminal(tmp_path, capsys):
    name = "rm\x1b[2J\nfake verdict"
    a, b = (hyperfine(tmp_path / f"{side}.json", 1.0, name) for side in "ab")
    main(["compare", a, b])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\nfake" not in out


def test_very_many_points_print_the_telling_ones(tmp_path, capsys):
    results = [{"command": f"c{at}", "times": [1.0, 1.1]} for at in range(300)]
    slow = [*results[:-1], {"command": "c299", "times": [9.0, 9.1]}]
    for name, document in (("a", results), ("b", slow)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"results": document}))
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 1
    out = capsys.readouterr().out
    assert "and 100 more; --json lists all of them" in out
    assert "c299" in out


def test_very_many_failures_are_cut_short(tmp_path, capsys):
    good = [{"command": f"c{at}", "times": [1.0, 1.1]} for at in range(300)]
    bad = [{**each, "exit_codes": [1, 1]} for each in good]
    for name, document in (("a", good), ("b", bad)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"results": document}))
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 1
    assert "and 100 more; --json lists all of them" in capsys.readouterr().out


def test_a_metric_that_some_points_lack_is_said(tmp_path, capsys):
    rows = [
        {"run_id": "r", "parameters": {"n": 1}, "iteration_metrics": [{"duration_s": 1.0}, {"x_bytes": 5}]}
    ]
    path = tmp_path / "r.json"
    path.write_text(json.dumps(rows[0]))
    assert main(["compare", str(path), str(path), "--metric", "x_bytes", "--metric", "duration_s"]) in {0, 3}
    out = capsys.readouterr().out
    assert "x_bytes, lower is better" in out
    assert "duration_s, lower is better" in out
    assert main(["compare", str(path), str(path), "--metric", "y_bytes"]) == 2
    assert "did you mean 'x_bytes'" in capsys.readouterr().err


@pytest.mark.parametrize("margin", ["much", "-5%", "2000%", ""])
def test_a_margin_that_is_no_share_is_refused(margin, tmp_path, capsys):
    path = hyperfine(tmp_path / "a.json", 1.0)
    assert main(["compare", path, path, "--margin", margin]) == 2
    assert "5% or 0.05" in capsys.readouterr().err


@pytest.mark.parametrize("margin", ["40%", "0.4", "40 pp"])
def test_margins_are_read_as_shares_and_percentages(margin, tmp_path, capsys):
    path = hyperfine(tmp_path / "a.json", 1.0)
    assert main(["compare", path, path, "--margin", margin]) == 0
    assert "more than 40 %" in capsys.readouterr().out


def test_unknown_runs_are_refused_with_a_hint(capsys):
    assert main(["compare", "nothing", "latest"]) == 2
    assert "nothing" in capsys.readouterr().err


def task_run(run_id: str, rewards: dict[str, list[float]], errors: int = 0) -> None:
    trials, attempts = [], []
    for name, rollouts in rewards.items():
        for rollout, reward in enumerate([*rollouts, *[None] * errors]):
            key = trial_key(subject_digest=name, rollout=rollout)
            trials.append(
                PlannedTrial(
                    key=key,
                    index=len(trials),
                    kind="task",
                    subject=name,
                    subject_digest=name,
                    body=0,
                    rollout=rollout,
                    agent="oracle",
                )
            )
            outcome = (
                Outcome.SANDBOX_ERROR if reward is None else Outcome.PASSED if reward else Outcome.FAILED
            )
            attempts.append(
                AttemptRecord(key=key, number=1, outcome=outcome, started_at=0, ended_at=1, reward=reward)
            )
    info = RunInfo(
        id=run_id, name="agents", kind="task", status=RunStatus.DONE, created_at=0, seed=0, total=len(trials)
    )
    with open_store(load_settings().store_url) as store:
        store.import_run(info, trials, [(record, True) for record in attempts])


def test_task_runs_show_three_denominators_and_both_claims(capsys):
    task_run("good", {f"t{at}": [1.0, 1.0, 0.0] for at in range(20)})
    task_run("bad", {f"t{at}": [0.0, at % 2] for at in range(20)}, errors=2)
    assert main(["compare", "good", "bad"]) == 3
    out = capsys.readouterr().out
    assert "without the errors it would be 'worse'" in out
    for words in (
        "errors excluded",
        "errors as zero",
        "best case",
        "tasks like these",
        "these tasks",
        "40 in B",
    ):
        assert words in out
    task_run("worst", {f"t{at}": [0.0, 0.0, 0.0] for at in range(20)})
    assert main(["compare", "good", "worst"]) == 1
    assert capsys.readouterr().out.startswith("Worse: B -66.7 pp over 20 tasks")
    task_run("lost", {f"t{at}": [] for at in range(20)}, errors=1)
    assert main(["compare", "good", "lost"]) == 3
    capsys.readouterr()


def test_the_page_of_a_comparison_is_written_beside_the_text(capsys, tmp_path, store_rollouts):
    store_run("run-1", 1.0, at=1)
    store_run("run-2", 2.0, at=2, code="v2")
    page = tmp_path / "new" / "compare.html"
    data = tmp_path / "new" / "compare.json"
    assert main(["compare", "run-1", "run-2", "--html", str(page), "--document", str(data)]) == 1
    assert f"written: {page}, {data}" in capsys.readouterr().out
    written = json.loads(data.read_text())
    assert (written["kind"], written["verdict"]) == ("compare", "worse")
    (chart, *_) = [each for each in written["sections"][0]["blocks"] if each["type"] == "chart"]
    assert chart["draw"]["chart"] == "forest"
    assert len(chart["draw"]["data"]["rows"]) == 3
    assert "<p class=lead>Worse: 3 of 3 points" in page.read_text()
    ends = {(f"org/{at}", "x"): ["passed", "failed"] for at in range(5)}
    for number in (1, 2):
        store_rollouts(ends, name="study", run_id=f"2026010{number}T000000-aaaaaa", folder=number == 2)
    folder = str(load_settings().rollouts_dir / "study" / "20260102T000000-aaaaaa")
    assert main(["compare", "20260101T000000-aaaaaa", folder, "--html", str(page), "--json"]) == 3
    json.loads(capsys.readouterr().out)
    assert "B minus A, task by task" in page.read_text()
    assert "Duration against score" in page.read_text()


def test_what_spec_and_class_declare_to_be_better_decides(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments.d").mkdir()
    (tmp_path / "experiments.d/deep.py").write_text(
        "from proctor import Experiment, register_experiment\n"
        "@register_experiment('deep')\n"
        "class Deep(Experiment):\n"
        "    better = {'depth': 'higher', 'width': 'higher'}\n"
        "    param_schema = {'n': (int, 1)}\n"
        "    def execute_once(self, context):\n"
        "        n = self.params['n'] + context.iteration_index % 2 * 1e-3\n"
        "        return {'depth': n, 'width': n, 'height': n}\n"
    )
    spec = {"experiment": "deep", "sources": ["experiments.d"], "iterations": {"measured": 9, "warmup": 0}}
    for n in (1, 2):
        written = {**spec, "better": {"width": "lower"}, "params": {"n": n}}
        Path("deep.json").write_text(json.dumps(written))
        assert main(["run", "deep.json"]) == 0
    capsys.readouterr()
    for metric, code, verdict in (("depth", 0, "Better"), ("width", 1, "Worse"), ("height", 3, "Changed")):
        assert main(["compare", "latest~1", "latest", "--metric", metric]) == code
        assert capsys.readouterr().out.startswith(verdict)

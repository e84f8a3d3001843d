from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
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
from proctor.runfolder.read import RunData, TrialResult
from proctor.runfolder.write import RunFolder
from proctor.settings import load_settings
from proctor.store.open import open_store

ROOT = Path(__file__).parent.parent.parent
SPEC = f"""
experiment: sorting
sources: {ROOT / "experiments.d"}
params: {{size: 100}}
iterations: {{measured: 3}}
gates:
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stored(
    run_id: str,
    scale: float = 1.0,
    *,
    at: float,
    gates: tuple[str, ...] = (),
    fail: int = -1,
    folder: Path | None = None,
) -> None:
    """A run of two points in the store, and in a folder if asked."""
    rng = np.random.default_rng(int(at))
    trials, records = [], []
    for index in range(2):
        key = trial_key(subject_digest="d", params={"n": index})
        trials.append(
            PlannedTrial(
                key=key, index=index, kind="experiment", subject="sort", subject_digest="d", body=0,
                params={"n": index},
            )
        )  # fmt: skip
        rows = tuple({"duration_s": float(v)} for v in scale * np.exp(rng.normal(0, 0.005, 30)))
        outcome = Outcome.FAILED if index == fail else Outcome.PASSED
        records.append(
            AttemptRecord(key=key, number=1, outcome=outcome, started_at=at, ended_at=at + 1, iterations=rows)
        )
    info = RunInfo(
        id=run_id, name="sorting", kind="experiment", status=RunStatus.DONE, created_at=at, seed=0, total=2,
        done=2, started_at=at, finished_at=at + 2, resolved={"gates": list(gates)},
        folder=str(folder or ""), environment={"hostname": "h"},
    )  # fmt: skip
    with open_store(load_settings().store_url) as store:
        store.import_run(info, trials, [(record, True) for record in records])
    if folder:
        results = tuple(TrialResult(t, (r,), r) for t, r in zip(trials, records, strict=True))
        RunFolder(folder).begin(info, Plan(trials=tuple(trials)))
        RunFolder(folder).finish(RunData(info, results), write_reports)


def rules(project: Path, *lines: str) -> str:
    path = project / "gate.yaml"
    path.write_text("".join(f"- {line}\n" for line in lines))
    return "gate.yaml"


def test_thresholds_alone_need_no_baseline(project, capsys):
    stored("run-1", at=1)
    file = rules(project, "failure_count == 0", "max_wall_clock_s <= 15", "metrics.duration_s.p95 <= 2")
    assert main(["gate", "latest", "--rules", file]) == 0
    assert capsys.readouterr().out.startswith("Gate: Pass: all 3 rules hold.\n  run  sorting run-1\n")
    file = rules(project, "max_wall_clock_s <= 0.5")
    assert main(["gate", "latest", "--rules", file]) == 1


def test_the_gates_of_the_spec_are_the_rules_unless_a_file_is_given(capsys):
    stored("run-1", at=1, gates=("failure_count == 0",))
    stored("run-2", at=2)
    assert main(["gate", "run-1"]) == 0
    assert main(["gate", "run-2"]) == 2
    assert "has no gates; give --rules FILE" in capsys.readouterr().err


def test_a_run_is_held_against_another_run(project, capsys):
    stored("run-1", at=1)
    stored("run-2", 2.0, at=2)
    file = rules(project, "duration_s not slower than baseline by more than 50%")
    assert main(["gate", "run-2", "--rules", file, "--baseline", "run-1", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "regression"
    assert found["baseline"] == "run sorting run-1"
    assert found["comparisons"] == 2
    assert found["rules"][0]["estimate"]["value"] == pytest.approx(2, rel=0.05)
    assert main(["gate", "run-1", "--rules", file, "--baseline", "run-2"]) == 0
    assert main(["gate", "run-1", "--rules", file, "--baseline", "nosuch"]) == 2
    assert "no baseline named 'nosuch'" in capsys.readouterr().err


def test_noise_is_learned_from_earlier_runs_of_the_same_code(project, capsys):
    for at in range(1, 8):
        stored(f"run-{at}", at=at)
    file = rules(project, "duration_s not slower than baseline by more than 15%")
    assert main(["gate", "run-7", "--rules", file, "--baseline", "run-6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "pass"


def test_a_pinned_baseline_serves_a_clone_that_has_no_store(project, capsys, monkeypatch):
    for at in range(1, 6):
        stored(f"run-{at}", at=at)
    assert main(["baseline", "pin", "sorting", "run-5", "--reason", "first"]) == 0
    stored("run-6", 2.0, at=6, folder=project / "kept")
    monkeypatch.setenv("PROCTOR_HOME", str(project / "empty"))
    file = rules(project, "duration_s not slower than baseline by more than 15%")
    assert main(["gate", "kept", "--rules", file]) == 1
    out = capsys.readouterr().out
    assert "compared with  baseline sorting (sorting run-5, pinned" in out
    assert not (project / "empty").exists()
    again = json.loads((project / "kept/gate.json").read_text())
    assert again["baseline_facts"]["reason"] == "first"
    assert 'id="gate"' in (project / "kept/report.html").read_text()


def test_without_a_baseline_the_answer_is_open(project, capsys):
    stored("run-1", at=1)
    file = rules(project, "no new failure reasons", "failure_count == 0")
    assert main(["gate", "latest", "--rules", file]) == 3
    assert "there is no baseline to compare with" in capsys.readouterr().out


def test_a_rule_file_may_name_its_baseline(project, capsys):
    stored("run-1", at=1)
    stored("run-2", at=2)
    main(["baseline", "pin", "main", "run-1", "--reason", "first"])
    (project / "gate.yaml").write_text("baseline: main\nrules: [no new failure reasons]\n")
    assert main(["gate", "run-2", "--rules", "gate.yaml"]) == 0
    assert "compared with  baseline main" in capsys.readouterr().out
    assert main(["gate", "run-1", "--rules", "gate.yaml"]) == 0
    assert "! the baseline is this run itself" in capsys.readouterr().out


def test_every_reader_gets_its_own_file(project, capsys, monkeypatch):
    stored("run-1", at=1, fail=1)
    summary = project / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    file = rules(project, "failure_count == 0")
    words = ["gate", "latest", "--rules", file, "--junit", "out/gate.xml", "--markdown", "out/comment.md"]
    assert main([*words, "--github", "--step-summary"]) == 1
    assert "::error file=gate.yaml,line=1,title=Proctor gate" in capsys.readouterr().out
    assert ET.parse(project / "out/gate.xml").getroot().attrib["failures"] == "1"
    assert (project / "out/comment.md").read_text().startswith("<!-- proctor-gate -->")
    assert summary.read_text().startswith("before\n<!-- proctor-gate -->")
    assert main([*words, "--github", "--json"]) == 1
    captured = capsys.readouterr()
    json.loads(captured.out)
    assert captured.err.startswith("::error ")


def test_a_step_summary_needs_a_place(project, monkeypatch, capsys):
    stored("run-1", at=1)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    words = ["gate", "latest", "--rules", rules(project, "failure_count == 0"), "--step-summary"]
    assert main(words) == 2
    assert "GITHUB_STEP_SUMMARY is not set" in capsys.readouterr().err
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project))
    assert main(words) == 5


def test_a_summary_file_can_be_gated_and_its_fields_listed(project, capsys):
    document = {"failure_count": 0, "run_artifacts": {"total_bytes": 10}, "failure_reasons": {}}
    (project / "perf.json").write_text(json.dumps(document))
    (project / "before.json").write_text(json.dumps(document))
    file = rules(project, "run_artifacts.total_bytes <= 2_000_000", "no new failure reasons")
    assert main(["gate", "perf.json", "--rules", file, "--baseline", "before.json"]) == 0
    assert main(["gate", "perf.json", "--fields"]) == 0
    assert "run_artifacts.total_bytes" in capsys.readouterr().out
    assert main(["gate", "perf.json"]) == 2
    assert main(["baseline", "pin", "x", "perf.json", "--reason", "y"]) == 2
    assert "cannot be pinned" in capsys.readouterr().err


def test_the_fields_of_a_run_can_be_listed(capsys):
    stored("run-1", at=1)
    assert main(["gate", "latest", "--fields"]) == 0
    assert re.search(r"^failure_count +0$", capsys.readouterr().out, re.MULTILINE)


def test_a_folder_that_cannot_be_written_still_gets_its_verdict(project, capsys, monkeypatch):
    stored("run-1", at=1, folder=project / "kept")
    (project / "kept/gate.json").mkdir()
    assert main(["gate", "kept", "--rules", rules(project, "failure_count == 0")]) == 0
    assert "the verdict could not be saved in the run's folder" in capsys.readouterr().err


def test_baselines_are_pinned_listed_shown_moved_and_removed(project, capsys):
    stored("run-1", at=1)
    stored("run-2", at=2)
    assert main(["baseline", "list"]) == 0
    assert "no baseline in proctor-baselines.json" in capsys.readouterr().out
    assert main(["baseline", "pin", "main", "run-1", "--reason", "first light"]) == 0
    assert main(["baseline", "pin", "main", "run-2", "--reason", "again"]) == 2
    assert main(["baseline", "update", "main", "run-2", "--reason", "faster sort"]) == 0
    capsys.readouterr()
    assert main(["baseline", "list"]) == 0
    assert re.search(r"main +run-2 +sorting .*faster sort", capsys.readouterr().out)
    assert main(["baseline", "show", "main"]) == 0
    shown = capsys.readouterr().out
    assert "first light" in shown
    assert "faster sort" in shown
    assert main(["baseline", "show", "main", "--json"]) == 0
    assert [each["run_id"] for each in json.loads(capsys.readouterr().out)["history"]] == ["run-1", "run-2"]
    assert main(["baseline", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["updates"] == 2
    assert main(["baseline", "show", "mian"]) == 2
    assert "did you mean 'main'" in capsys.readouterr().err
    assert main(["baseline", "rm", "main"]) == 0
    assert json.loads(Path("proctor-baselines.json").read_text())["baselines"] == {}


def test_the_file_of_baselines_is_a_setting_and_an_option(project, capsys, monkeypatch):
    for at in range(1, 7):
        stored(f"run-{at}", at=at)
    monkeypatch.setenv("PROCTOR_BASELINES", "ci/base.json")
    assert main(["baseline", "pin", "main", "run-1", "--reason", "x"]) == 0
    assert (project / "ci/base.json").is_file()
    assert main(["baseline", "pin", "main", "run-1", "--reason", "x", "--baselines", "other.json"]) == 0
    assert main(["baseline", "show", "main"]) == 0
    assert "noise of duration_s: 0.0" in capsys.readouterr().out
    file = rules(project, "no new failure reasons")
    words = ["gate", "run-2", "--rules", file, "--baseline", "main"]
    assert main([*words, "--baselines", "other.json"]) == 0
    assert main([*words, "--baselines", "none.json"]) == 2


def test_a_run_is_gated_at_its_end(project, capsys):
    Path("spec.yaml").write_text(SPEC + "  - failure_count == 0\n  - max_wall_clock_s <= 500\n")
    assert main(["run", "spec.yaml"]) == 0
    assert "Gate: Pass: all 2 rules hold." in capsys.readouterr().out
    Path("spec.yaml").write_text(SPEC + "  - success_count >= 2\n")
    assert main(["run", "spec.yaml", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["gate"]["verdict"] == "regression"
    Path("spec.yaml").write_text(SPEC + "  - no new failure reasons\n")
    assert main(["run", "spec.yaml"]) == 3


def test_a_slip_in_a_gate_is_told_before_anything_runs(project, capsys):
    Path("spec.yaml").write_text(SPEC + "  - failure_count = 0\n")
    assert main(["run", "spec.yaml"]) == 2
    assert "spec.yaml: rule 'failure_count = 0': '=' is not an operator" in capsys.readouterr().err
    assert not Path(load_settings().store_url).exists()


def test_the_page_of_a_gate_has_the_rules_and_the_evidence(project, capsys):
    stored("run-1", at=1)
    stored("run-2", 2.0, at=2)
    file = rules(project, "duration_s not slower than baseline by more than 50%", "failure_count == 0")
    page = project / "new" / "gate.html"
    assert main(["gate", "run-2", "--rules", file, "--baseline", "run-1", "--html", str(page)]) == 1
    text = page.read_text()
    assert "</i>regression</span></h1>" in text
    assert "times the baseline, log scale" in text
    assert "B over A, point by point" in text
    assert "What would change it" in text
    assert main(["gate", "run-2", "--rules", rules(project, "failure_count == 0"), "--html", str(page)]) == 0
    assert "</i>pass</span></h1>" in page.read_text()
    assert "B over A" not in page.read_text()


def test_pages_lead_to_the_reports_and_into_the_trials(project, capsys):
    for at, name in enumerate(("run-1", "run-2"), 1):
        stored(name, float(at), at=at, folder=project / "runs" / name)
    file = rules(project, "duration_s not slower than baseline by more than 50%")
    data, page = project / "pages" / "gate.json", project / "pages" / "compare.html"
    main(["gate", "run-2", "--rules", file, "--baseline", "run-1", "--document", str(data)])
    assert f"report of the baseline: {project}/runs/run-1/report.html" in capsys.readouterr().out
    found = json.loads(data.read_text())
    assert [link["href"] for link in found["links"]] == [
        "../runs/run-2/report.html",
        "../runs/run-1/report.html",
    ]
    assert [each["title"] for each in found["sections"]][:3] == ["Rules", "Statistical rules", "Duration"]
    main(["compare", "run-1", "run-2", "--html", str(page)])
    leads = re.findall(r'href="([^"]+)"', page.read_text())
    assert "../runs/run-1/report.html" in leads
    assert "../runs/run-2/trials/sort/1/result.json" in leads
    assert all((page.parent / each).is_file() for each in leads)
    capsys.readouterr()


def test_a_verdict_replaces_the_one_before_it_in_the_page_of_the_run(project, capsys):
    stored("run-1", at=1, folder=project / "folder")
    page = project / "folder" / "report.html"
    before = page.read_text()
    assert main(["gate", "run-1", "--rules", rules(project, "failure_count == 0")]) == 0
    first = page.read_text()
    assert first.count('<section id="gate">') == 1
    assert "all" not in first[first.index("gate") : first.index("gate") + 40]
    assert main(["gate", "run-1", "--rules", rules(project, "failure_count >= 5")]) == 1
    second = page.read_text()
    assert second.count('<section id="gate">') == 1
    assert "regression" in second
    start, end = second.index('<section id="gate">'), second.index("</section>") + len("</section>")
    assert second[:start] + second[end:] == before

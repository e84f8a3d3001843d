"""`proctor aa` as a shell sees it: the sentence, the exit code, the documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import jsonschema
import numpy as np
import pytest

from proctor.cli.main import main
from proctor.cli.quantities import Share
from proctor.errors import Exit
from proctor.runfolder.perf.schema import load_schema, problems

Put = Callable[..., Any]
QUICK = ["--simulations", "100"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rolled(
    tasks: int, rollouts: int, chance: float = 0.7, seed: int = 1
) -> dict[tuple[str, str], list[float | str]]:
    generator = np.random.default_rng(seed)
    return {
        (f"task-{at}", "solver"): [float(hit) for hit in generator.random(rollouts) < chance]
        for at in range(tasks)
    }


def certificate(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["aa", *words, *QUICK, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert problems(document, load_schema("noise-certificate")) == []
    jsonschema.validate(document, load_schema("noise-certificate"))
    assert document["exit_code"] == code
    return code, document


def test_a_suite_of_rollouts_is_certified_with_its_alarms_and_its_reach(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str]
):
    store_rollouts(rolled(12, 8))
    code, found = certificate(capsys, "study", "--margin", "10pp")
    assert code == Exit.OK
    assert found["standing"] == "good"
    assert found["sentence"].startswith("A real drop of ")
    assert "at 8 rollouts of 12 tasks, however it is spread over the tasks; false alarms" in found["sentence"]
    assert found["detectable"] == max(found["detectable_even"], found["detectable_concentrated"])
    assert found["detectable"] <= found["useful_detectable"] == pytest.approx(0.5)
    splits, simulated = found["false_alarms"]
    assert splits["per_side"] == "4 rollouts of 12 tasks"
    assert simulated["per_side"] == "8 rollouts of 12 tasks"
    assert [rate["rule"] for rate in splits["rules"]][1:] == [
        "two intervals by eye",
        "pooled z",
        "McNemar on rollouts",
    ]
    assert sum(simulated["calls"].values()) == 100
    assert [row["count"] for row in found["reach"]] == list(range(1, 21))
    assert found["reach"][7]["detectable"] == pytest.approx(found["detectable"])
    assert found["reach"][7]["hours"] == pytest.approx(2 * 12 * 8 * 1.5 / 3600)
    known = [row["detectable"] for row in found["reach"] if row["detectable"] is not None]
    assert known == sorted(known, reverse=True)
    assert found["correlation"]["icc"] < 0.3
    assert {task["task"] for task in found["flaky"]} <= {f"task-{at}" for at in range(12)}


def test_a_suite_that_detects_only_large_losses_is_quiet_but_blind(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str]
):
    store_rollouts(rolled(9, 4))
    code, found = certificate(capsys, "study", "--margin", "3pp")
    assert code == Exit.INCONCLUSIVE
    assert found["standing"] == "quiet_but_blind"
    assert found["detectable"] > found["useful_detectable"] == pytest.approx(0.15)
    assert found["sentence"].startswith("Quiet but blind: only a real drop of ")
    assert "larger --margin" in found["next_steps"][0]
    assert main(["aa", "study", *QUICK, "--out", "blind.md"]) == Exit.INCONCLUSIVE
    assert "Noise certificate: quiet but blind" in Path("blind.md").read_text()


def test_times_that_show_only_large_slowdowns_are_quiet_but_blind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, found = certificate(capsys, spec(tmp_path, 12), "--margin", "1%")
    assert found["standing"] == "quiet_but_blind"
    assert code == Exit.INCONCLUSIVE
    assert found["sentence"].startswith("Quiet but blind: only a slowdown of ")
    assert "more iterations are not enough" in found["next_steps"][0]


def test_the_same_run_and_seed_give_the_same_certificate(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str]
):
    store_rollouts(rolled(8, 6))
    first, second = (certificate(capsys, "study", "--seed", "7")[1] for _ in range(2))
    first.pop("made_at"), second.pop("made_at")
    assert first == second


def test_the_text_has_the_verdict_first_and_ends_with_what_to_do(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str]
):
    ends = rolled(12, 8)
    ends["task-0", "solver"][0] = "sandbox_error"
    store_rollouts(ends)
    assert main(["aa", "study", *QUICK, "--margin", "10pp"]) == Exit.OK
    printed = capsys.readouterr().out
    assert printed.startswith("A real drop of ")
    for part in (
        "False alarms: identical sides reported as worse",
        "McNemar on rollouts",
        "What would be detected with 80 % probability, and what it costs",
        "lost to errors not caused by the agent: 1 (1.0 %)",
        "intra-task correlation",
        "gate with 'score not worse than baseline by more than 10pp at 95%'",
        "good needs a detectable change of at most 50 pp, 5 times the margin",
        "when a few tasks lose everything",
        "fix what broke 1 rollout first",
    ):
        assert part in printed
    assert printed.rstrip().splitlines()[-1].startswith("- ")


@pytest.mark.parametrize(
    ("tasks", "rollouts", "said"),
    [
        (4, 6, "4 tasks cannot prove any difference for tasks like these at 95 %; at least 6 tasks"),
        (8, 1, "are too few to estimate chance"),
    ],
)
def test_too_little_data_is_said_to_be_too_little(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str], tasks: int, rollouts: int, said: str
):
    store_rollouts(rolled(tasks, rollouts))
    code, found = certificate(capsys, "study", "--tasks-like-these")
    assert code == Exit.INCONCLUSIVE
    assert said in found["sentence"]
    assert found["next_steps"]


def test_few_tasks_are_certified_for_themselves_unless_more_is_asked(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str]
):
    store_rollouts(rolled(4, 6))
    code, found = certificate(capsys, "study", "--margin", "15pp")
    assert code == Exit.OK
    assert found["claim"] == "these tasks"


def test_few_tasks_can_be_certified_for_themselves(store_rollouts: Put, capsys: pytest.CaptureFixture[str]):
    store_rollouts(rolled(4, 10))
    code, found = certificate(capsys, "study", "--these-tasks", "--margin", "10pp")
    assert code == Exit.OK
    assert found["claim"] == "these tasks"
    assert "for these tasks" in found["next_steps"][0]


def test_an_agent_that_earns_nothing_has_no_loss_to_find(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str]
):
    store_rollouts(rolled(9, 5, chance=0.0))
    code, found = certificate(capsys, "study")
    assert code == Exit.INCONCLUSIVE
    assert "the agent's score is 0" in found["sentence"]
    assert found["correlation"] is None


def test_a_loss_that_only_more_rollouts_would_show_is_named(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str]
):
    store_rollouts(rolled(7, 4, chance=0.35, seed=5))
    code, found = certificate(capsys, "study", "--rollouts", "1")
    assert code == Exit.INCONCLUSIVE
    assert found["detectable"] is None
    assert found["reach"][0]["detectable"] is None
    assert found["next_steps"]


def test_a_suite_without_luck_is_certified_too(store_rollouts: Put, capsys: pytest.CaptureFixture[str]):
    store_rollouts(rolled(9, 5, chance=1.0))
    code, found = certificate(capsys, "study", "--margin", "15pp")
    assert code == Exit.OK
    assert found["flaky"] == []
    assert found["false_alarms"][0]["rules"][0]["alarms"] == 0
    assert found["reach"][4]["detectable"] >= found["reach"][10]["detectable"]


def test_only_infrastructure_failures_are_not_certified(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str]
):
    store_rollouts({("task", "solver"): ["sandbox_error"] * 5})
    code, found = certificate(capsys, "study")
    assert code == Exit.INFRASTRUCTURE
    assert found["errors"] == {"count": 5, "share": 1.0}


def test_a_run_without_results_is_too_little(store_rollouts: Put, capsys: pytest.CaptureFixture[str]):
    store_rollouts({("task", "solver"): [None] * 5})
    code, found = certificate(capsys, "study")
    assert code == Exit.INCONCLUSIVE
    assert "5 trials of 5 have no result yet" in found["notes"]


def test_runs_of_the_same_plan_that_disagree_make_a_suite_that_cries_wolf(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str]
):
    for at in range(9):
        chance = 0.95 if at % 2 == 0 else 0.1
        store_rollouts(rolled(12, 5, chance=chance, seed=at), run_id=f"20260101T00000{at}-aaaaaa")
    code, found = certificate(capsys, "20260101T000008-aaaaaa")
    assert code == Exit.WORSE
    assert found["standing"] == "cries_wolf"
    assert found["sentence"].startswith("Too many false alarms")
    repeats = found["false_alarms"][-1]
    assert repeats["name"] == "repeats"
    assert repeats["rules"][0]["pairs"] == 8
    assert repeats["rules"][0]["alarms"] == 4
    assert "proctor vet" in found["next_steps"][0]


def test_a_run_that_drifted_says_so(store_rollouts: Put, capsys: pytest.CaptureFixture[str]):
    store_rollouts({(f"task-{at}", "solver"): [1.0] * 5 + [0.0] * 5 for at in range(12)})
    _, found = certificate(capsys, "study")
    assert found["drift"]["moved"] is True
    main(["aa", "study", *QUICK])
    assert "the run drifted" in capsys.readouterr().out


def test_several_agents_are_told_apart_as_the_gate_does(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str]
):
    ends = rolled(6, 5)
    store_rollouts({**ends, **{(task, "other"): rewards for (task, _), rewards in ends.items()}})
    _, found = certificate(capsys, "study")
    assert found["subjects"] == 12
    assert "2 arms took part" in found["notes"][0]


@pytest.mark.parametrize("name", ["noise.json", "noise.md", "noise.html"])
def test_the_certificate_is_written_in_the_form_that_its_name_says(
    store_rollouts: Put, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
):
    store_rollouts(
        {(f"<b>task|{at}</b>", "solver"): rewards for at, rewards in enumerate(rolled(8, 6).values())}
    )
    assert main(["aa", "study", *QUICK, "--margin", "15pp", "--out", f"deep/{name}"]) == Exit.OK
    assert f"written: deep/{name}" in capsys.readouterr().out
    text = (tmp_path / "deep" / name).read_text()
    assert "A real drop of" in text.replace("\u00a0", " ")
    if name.endswith(".json"):
        assert problems(json.loads(text), load_schema("noise-certificate")) == []
    else:
        assert "<b>task" not in text


def test_a_run_folder_is_certified_without_a_store(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    info = store_rollouts(rolled(8, 6), folder=True)
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "elsewhere"))
    code, found = certificate(capsys, info.folder, "--margin", "15pp")
    assert code == Exit.OK
    assert found["run_id"] == info.id


SORTING = """
experiment: probe
sources: {folder}
sweep: {{size: [1, 2]}}
iterations: {{measured: {measured}}}
"""
PROBE = """
from proctor import Experiment, register_experiment

@register_experiment("probe")
class Probe(Experiment):
    def __init__(self, size: int = 1, broken: bool = False):
        self.size, self.broken = size, broken

    def execute_once(self, context):
        if self.broken:
            raise RuntimeError("no")
        return {{"total": sum(range(1000 * self.size))}}
""".replace("{{", "{").replace("}}", "}")


def spec(tmp_path: Path, measured: int) -> str:
    (tmp_path / "probes").mkdir(exist_ok=True)
    (tmp_path / "probes" / "probe.py").write_text(PROBE)
    file = tmp_path / "probe.yaml"
    file.write_text(SORTING.format(folder=tmp_path / "probes", measured=measured))
    return str(file)


def test_a_spec_of_an_experiment_is_run_and_then_certified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, found = certificate(capsys, spec(tmp_path, 12), "--margin", "50%")
    assert code == Exit.OK
    assert found["kind"] == "experiment"
    assert found["subjects"] == 2
    assert found["values"] == 24
    assert found["sentence"].startswith("A slowdown of ")
    assert found["noise"]["sigma"] == 0.05
    assert found["noise"]["df"] is None
    assert found["false_alarms"][0]["per_side"] == "6 iterations of 2 points"
    assert [rate["rule"] for rate in found["false_alarms"][0]["rules"]][1:] == [
        "medians by eye",
        "Welch per point",
    ]
    assert [row["count"] for row in found["reach"]] == [6, 12, 24, 48, 96, 192]
    assert main(["aa", "latest", *QUICK, "--margin", "50%", "--out", "a.md"]) == Exit.OK
    assert "run-to-run noise 5.0 % (the default" in capsys.readouterr().out


def test_repeats_of_an_experiment_are_real_pairs_and_teach_the_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = spec(tmp_path, 8)
    for _ in range(4):
        main(["run", file])
    capsys.readouterr()
    _, found = certificate(capsys, file)
    assert found["false_alarms"][-1]["name"] == "repeats"
    assert found["false_alarms"][-1]["rules"][0]["pairs"] == 4
    assert "from 4 earlier runs" in found["noise"]["source"]


def test_too_few_iterations_are_too_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, found = certificate(capsys, spec(tmp_path, 3))
    assert code == Exit.INCONCLUSIVE
    assert "no point has 6 measured iterations" in found["sentence"]
    assert "2 points with fewer than 6 iterations were left out" in found["notes"]


def test_experiments_that_only_infrastructure_broke_are_not_certified(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str]
):
    store_rollouts({("probe", "x"): ["sandbox_error"]}, kind="experiment")
    code, found = certificate(capsys, "study")
    assert code == Exit.INFRASTRUCTURE
    assert found["kind"] == "experiment"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing-here"], "no run named"),
        (["nothing.yaml"], "nothing.yaml"),
        (["study", "--margin", "much"], "--margin"),
        (["study", "--margin", "0"], "--margin"),
        (["study", "--margin", "120%"], "--margin"),
        (["study", "--out", "x.pdf"], ".json, .md or .html"),
        (["study", "--simulations", "5"], "simulations"),
        (["study", "--rollouts", "0"], "rollouts"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(
    store_rollouts: Put, capsys: pytest.CaptureFixture[str], words: list[str], said: str
):
    store_rollouts(rolled(2, 2))
    assert main(["aa", *words]) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_rollouts_of_an_experiment_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = spec(tmp_path, 6)
    assert main(["aa", file, "--rollouts", "3"]) == Exit.USAGE
    main(["run", file])
    capsys.readouterr()
    assert main(["aa", "latest", "--these-tasks"]) == Exit.USAGE
    assert "but no rollouts or tasks" in capsys.readouterr().err


def test_a_spec_of_tasks_with_one_rollout_is_refused_before_anything_is_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "study.json"
    tasks = Path(__file__).parents[2] / "tasks"
    file.write_text(
        json.dumps(
            {
                "tasks": [{"path": str(tasks / "config-edit"), "agent": "oracle"}],
                "sandbox": {"host_root": True},
            }
        )
    )
    assert main(["aa", str(file)]) == Exit.USAGE
    assert "--rollouts 5" in capsys.readouterr().err


@pytest.mark.needs("bubblewrap")
def test_a_spec_of_tasks_is_rolled_out_and_then_certified(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "study.json"
    tasks = Path(__file__).parents[2] / "tasks"
    file.write_text(
        json.dumps(
            {
                "tasks": [{"path": str(tasks / "config-edit"), "agent": "oracle"}],
                "sandbox": {"host_root": True},
            }
        )
    )
    code, found = certificate(capsys, str(file), "--rollouts", "3")
    assert code == Exit.INCONCLUSIVE
    assert found["values"] == 3
    assert "too few to estimate chance" in found["sentence"]


@pytest.mark.parametrize(("written", "value"), [("3pp", 0.03), ("3 pp", 0.03), ("5%", 0.05), ("0.1", 0.1)])
def test_a_margin_may_be_written_in_any_usual_way(written: str, value: float):
    assert Share().convert(written, None, None) == pytest.approx(value)


@pytest.mark.parametrize("written", ["", "pp", "nan", "inf", "-3pp", "1"])
def test_a_margin_that_means_nothing_is_refused(written: str):
    with pytest.raises(click.BadParameter, match="not a share"):
        Share().convert(written, None, None)

"""Whoever reads a run finds the same scores, intervals and counts: commands, routes, files, gate, page.

The runs are drawn at random, and what is true of them is worked out by `tests.random_runs` from the
definitions alone (docs/decisions/0048-a-score-belongs-to-an-arm.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from tests.random_runs import DrawnRun, Truth, drawn_run
from tests.server.conftest import Serving, here

from proctor.analysis.claim import Claim
from proctor.analysis.estimate import Score
from proctor.runfolder.read import RunData
from proctor.store.open import open_store
from proctor.store.service.uploads import Upload
from proctor.store.store import Store

RUNS = 300
FEW = range(0, RUNS, 20)
"""Runs that are also read by what takes long."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("one_score")


@pytest.fixture(scope="module")
def drawn() -> list[DrawnRun]:
    return [drawn_run(number) for number in range(RUNS)]


@pytest.fixture(scope="module")
def store(home: Path, drawn: list[DrawnRun]) -> Iterator[Store]:
    (home / ".proctor").mkdir()
    with open_store(str(home / ".proctor/proctor.db")) as made:
        for run in drawn:
            run.put(made)
        yield made


@pytest.fixture(scope="module")
def server(home: Path, store: Store) -> Iterator[Serving]:
    with here(home) as found:
        yield found


@pytest.fixture
def cli(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    from proctor.cli.main import main

    monkeypatch.setenv("PROCTOR_HOME", str(home / ".proctor"))
    monkeypatch.chdir(home)

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        main([*arguments, "--json"])
        return json.loads(capsys.readouterr().out)

    return run


def near(found: float | None, expected: float | None) -> bool:
    if found is None or expected is None or not math.isfinite(expected):
        return found is None and (expected is None or not math.isfinite(expected))
    return math.isclose(found, expected, abs_tol=1e-9)


def check_share(found: Mapping[str, Any] | None, expected: Score | None) -> None:
    """A score as `summary.json` writes it."""
    if found is None or expected is None:
        assert found is expected
        return
    assert near(found["value"], expected.value)
    assert found["claim"] == expected.claim
    assert near(found["interval_95"][0], expected.these_tasks.low)
    wide = expected.tasks_like_these
    assert found["interval_95_tasks_like_these"] == (pytest.approx([wide.low, wide.high]) if wide else None)


def check_ends(low: float | None, high: float | None, expected: Score, claim: str | None = None) -> None:
    ends = expected.interval(Claim(claim) if claim else None)
    assert near(low, ends.low)
    assert near(high, ends.high)


def check_readings(found: Mapping[str, Any], arm: Truth) -> None:
    """A score under the three readings of errors."""
    assert (found["scored"], found["errors"]) == (arm.scored, arm.errors)
    assert near(found["errors_excluded"], arm.score.value if arm.score else None)
    assert near(found["errors_as_zero"], arm.as_zero)
    assert near(found["best_case"], arm.best_case)


def check_overview(found: Mapping[str, Any], run: DrawnRun) -> None:
    """`score` of a run with one arm, `scores` of all."""
    assert found["scores"].keys() == run.arms.keys()
    for name, arm in run.arms.items():
        check_readings(found["scores"][name], arm)
    if len(run.arms) == 1:
        check_readings(found["score"], next(iter(run.arms.values())))
    else:
        assert found["score"] is None


def check_summary(found: Mapping[str, Any], run: DrawnRun) -> None:
    check_overview(found, run)
    arms = {arm["name"]: arm for arm in found["arms"]}
    assert arms.keys() == run.arms.keys()
    for name, truth in run.arms.items():
        arm = arms[name]
        counts = (arm["scored"], arm["passed"], arm["errors"], arm["missing"])
        assert counts == (truth.scored, truth.passed, truth.errors, truth.missing)
        check_share(arm["mean_reward"]["errors_excluded"], truth.score)
        check_share(arm["pass_rate"]["errors_excluded"], truth.pass_rate)


def check_fields(found: Mapping[str, Any], run: DrawnRun) -> None:
    """What thresholds of a gate look at."""
    check_overview(found, run)
    assert found["success_count"] == run.passed
    assert near(found["success_rate"], run.passed / run.scored if run.scored else None)
    ended = sum(bool(tries) for _, tries in run.pairs)
    assert found["failure_count"] == ended - run.passed == sum(found["failure_reasons"].values())
    for name, arm in run.arms.items():
        share = found["pass_rates"][name]["errors_excluded"]
        assert near(share, arm.pass_rate.value if arm.pass_rate else None)


def check_row(found: Mapping[str, Any], run: DrawnRun) -> None:
    """A run as the API lists it."""
    assert (found["passed"], found["scored"], found["errors"]) == (run.passed, run.scored, run.errors)
    scores = {each["arm"]: each for each in found["scores"]}
    known = {name: arm for name, arm in run.arms.items() if arm.score}
    assert scores.keys() == known.keys()
    for name, arm in known.items():
        assert arm.score is not None
        assert arm.pass_rate is not None
        each = scores[name]
        assert near(each["value"], arm.score.value)
        assert near(each["pass_rate"], arm.pass_rate.value)
        check_ends(each["low"], each["high"], arm.score, each["claim"])
        check_ends(each["these_low"], each["these_high"], arm.score, "these tasks")
        check_ends(each["pass_low"], each["pass_high"], arm.pass_rate)
        assert each["claim"] == arm.score.claim
        assert (each["n"], each["passed"], each["errors"]) == (arm.scored, arm.passed, arm.errors)
    assert found["score"] == (found["scores"][0] if len(run.arms) == 1 and known else None)


def test_the_runs_have_all_that_could_set_readers_apart(drawn: list[DrawnRun]):
    ends = [tries[-1] for run in drawn for _, tries in run.pairs if tries]
    assert sum(len(run.arms) > 1 for run in drawn) > RUNS / 3
    assert any(len(tries) > 1 for run in drawn for _, tries in run.pairs)
    assert any(each.outcome == "agent_timeout" and each.reward == 1 for each in ends)
    assert any(each.outcome == "passed" and each.reward is None for each in ends)
    assert any(each.outcome == "invalid" for each in ends)
    assert any(each.suspect for each in ends)
    assert any("steps" in each.metrics for each in ends)
    assert any(not tries for run in drawn for _, tries in run.pairs)
    assert any(run.info.imported for run in drawn)
    assert any("MODE=" in name for run in drawn for name in run.arms)
    assert any("version=" in name for run in drawn for name in run.arms)


def test_the_summary_of_a_stored_run(drawn: list[DrawnRun], store: Store):
    from proctor.verdicts.run.summary import summary

    for run in drawn:
        check_summary(summary(RunData.from_store(store, run.info.id)), run)


def test_a_gate_from_columns_and_from_records(drawn: list[DrawnRun], store: Store):
    from proctor.verdicts.gate.inputs import input_of_run
    from proctor.verdicts.gate.open import input_from_store
    from proctor.verdicts.gate.rules import read_rules

    rules = read_rules(["score >= 0.5"])
    for run in drawn:
        stored = input_from_store(store, run.info.id, rules)
        assert stored is not None
        whole = input_of_run(RunData.from_store(store, run.info.id), ())
        for each in (stored, whole):
            check_fields(each.fields, run)
        assert stored.reasons == whole.reasons
        assert (stored.broken, stored.missing) == (whole.broken, whole.missing)


def test_a_gate_judges_every_arm_and_the_one_that_a_rule_names(drawn: list[DrawnRun], store: Store):
    from proctor.verdicts.gate.evaluate import evaluate
    from proctor.verdicts.gate.open import stored_input
    from proctor.verdicts.gate.rules import read_rules
    from proctor.verdicts.gate.verdict import GateVerdict, overall

    for run in drawn:
        written = ["score >= 0.5", *(f'score of "{name}" >= 0.5' for name in run.arms)]
        rules = read_rules(written)
        whole, *single = evaluate(rules, stored_input(store, run.info.id, rules)).results[: len(written)]
        assert whole.verdict is overall(each.verdict for each in single)
        for arm, each in zip(run.arms.values(), single, strict=True):
            assert (each.estimate is None) == (arm.score is None)
            if arm.score and each.estimate:
                assert near(each.estimate.value, arm.score.value)
                check_ends(each.estimate.low, each.estimate.high, arm.score, each.estimate.claim)
                assert each.estimate.claim == arm.score.claim
                open_ = (arm.as_zero >= 0.5) != (arm.best_case >= 0.5)
                known = GateVerdict.PASS if arm.score.value >= 0.5 else GateVerdict.REGRESSION
                assert each.verdict is (GateVerdict.INCONCLUSIVE if open_ else known)


def test_a_comparison_of_a_run_with_itself(drawn: list[DrawnRun], store: Store):
    from proctor.verdicts.compare.judge import compare
    from proctor.verdicts.compare.results import from_run
    from proctor.verdicts.compare.stored import from_store

    for run in drawn:
        side = from_store(store, run.info.id, ())
        assert from_run(RunData.from_store(store, run.info.id), ()).arms == side.arms
        found = compare(side, side).to_dict()
        scores = {each["arm"]: each for each in found["scores"]}
        assert scores.keys() == run.arms.keys()
        assert (found["score"] is None) == (len(run.arms) > 1)
        for name, arm in run.arms.items():
            each = scores[name]["b"]
            assert each["errors"] == arm.errors
            assert near((each["excluded"] or {}).get("value"), arm.score.value if arm.score else None)
            assert near((each["as_zero"] or {}).get("value"), arm.as_zero)


def test_a_history(drawn: list[DrawnRun], store: Store):
    from proctor.model.arms import named
    from proctor.verdicts.history.reading import read
    from proctor.verdicts.rollouts.columns import layout_of

    for run in drawn:
        for metric in ("reward", "pass_rate"):
            found = read(store, run.info, metric, "")
            values = [found.values[key] for key in found.main]
            known = [arm for arm in run.arms.values() if arm.score]
            assert len(values) == len(known)
            arms = list(named(arm.identity for arm in layout_of(store, run.info).arms).values())
            for value, arm in zip(
                values, (run.arms[each] for each in arms if run.arms[each].score), strict=True
            ):
                expected = arm.score if metric == "reward" else arm.pass_rate
                assert expected is not None
                assert near(value.value, expected.value)
                assert value.n == arm.scored
                check_ends(value.low, value.high, expected)


def test_a_leaderboard(drawn: list[DrawnRun], store: Store):
    from proctor.render.results.leaderboard import to_mapping
    from proctor.verdicts.leaderboard.collect import collect
    from proctor.verdicts.leaderboard.rank import rank
    from proctor.verdicts.rollouts.columns import layout_of

    for run in drawn:
        labels = {arm.label: arm.name for arm in layout_of(store, run.info).arms}
        entrants, warnings = collect(store, [run.info.id])
        board = to_mapping(rank(entrants, warnings=warnings))
        assert {labels[each["label"]] for each in board["standings"]} == run.arms.keys()
        for each in board["standings"]:
            arm = run.arms[labels[each["label"]]]
            assert (each["scored"], each["passed"], each["errors"]) == (arm.scored, arm.passed, arm.errors)
            assert near(each["pass_rate"], arm.pass_rate.value if arm.pass_rate else None)
            assert near(each["score"], arm.score.value if arm.score else None)
            if arm.pass_rate:
                check_ends(each["low"], each["high"], arm.pass_rate, board["claim"])


def test_every_route_of_the_server(drawn: list[DrawnRun], server: Serving):
    rows: dict[str, Any] = {}
    after = ""
    while len(rows) < RUNS:
        page = server.client.get("/api/runs", params={"limit": 100, **({"cursor": after} if after else {})})
        items = page.json()["items"]
        rows |= {each["id"]: each for each in items}
        after = page.json().get("next") or ""
        if not after:
            break
    assert len(rows) == RUNS
    for run in drawn:
        check_row(rows[run.info.id], run)
    for run in drawn:
        address = f"/api/runs/{run.info.id}"
        check_row(server.client.get(address).json(), run)
        matrix = server.client.get(f"{address}/matrix").json()
        counts = [each for row in matrix["rows"] for each in row["counts"]]
        sums = [sum(each[name] for each in counts) for name in ("passed", "scored", "errors")]
        assert sums == [run.passed, run.scored, run.errors]
        trials = server.client.get(f"{address}/trials", params={"limit": 500}).json()["items"]
        assert sum(each["passed"] for each in trials) == run.passed


def test_verdicts_of_the_server(drawn: list[DrawnRun], server: Serving):
    for run in drawn[::5]:
        run_id, known = run.info.id, [arm for arm in run.arms.values() if arm.score]
        shares = [arm.pass_rate.value for arm in known if arm.pass_rate]
        board = server.client.get("/api/leaderboard", params={"run": run_id}).json()["board"]
        rates = [each["pass_rate"] for each in board["standings"] if each["pass_rate"] is not None]
        assert sorted(rates) == pytest.approx(sorted(shares))
        compared = server.client.get("/api/compare", params={"a": run_id, "b": run_id}).json()["comparison"]
        values = [each["a"]["excluded"]["value"] for each in compared["scores"] if each["a"]["excluded"]]
        assert sorted(values) == pytest.approx(sorted(arm.score.value for arm in known if arm.score))
        history = server.client.get("/api/history", params={"series": run.info.name}).json()["history"]
        at = [each["id"] for each in history["runs"]].index(run_id)
        lines = [each["values"][at] for each in history["lines"] if each["main"] and each["values"][at]]
        if not history["runs"][at]["left_out"]:
            assert sorted(each["value"] for each in lines) == pytest.approx(sorted(shares))


def test_the_shapes_that_older_clients_know(drawn: list[DrawnRun], store: Store, server: Serving):
    uploads = store.service.uploads
    for run in drawn[::30]:
        made = Upload(
            id=f"up-{run.info.id}", project="default", owner="ada", name="task", description="",
            filename="task.zip", size_bytes=0, blob="", digest="d", subject="s", findings=[], agent="nop",
            model="", num_runs=run.info.total,
        )  # fmt: skip
        uploads.add(made)
        uploads.set_run(made.id, run.info.id)
        task = server.client.get(f"/api/tasks/{made.id}").json()
        assert (task["passed_runs"], task["failed_runs"]) == (run.passed, run.scored - run.passed)
        statuses = [each["status"] for each in server.client.get(f"/api/tasks/{made.id}/runs").json()]
        assert statuses.count("passed") == run.passed
    counted = server.client.get("/api/stats").json()["runs"]
    assert counted["passed"] == sum(run.passed for run in drawn[::30])
    assert counted["failed"] == sum(run.scored - run.passed for run in drawn[::30])


def test_the_page_of_a_run(drawn: list[DrawnRun], server: Serving):
    """What a browser counts in the matrix are the looks of its signs."""
    for run in drawn:
        document = server.client.get(f"/api/runs/{run.info.id}/document").json()
        document = document.get("document", document)
        blocks = [block for section in document["sections"] for block in section.get("blocks", ())]
        (matrix,) = [block for block in blocks if block["type"] == "matrix"]
        looks = [sign["look"] for _, cells in matrix["rows"] for cell in cells for sign in cell]
        assert looks.count("pass") == run.passed
        assert sum(look in {"pass", "part", "fail", "own"} for look in looks) == run.scored
        assert looks.count("error") == run.errors


def test_tasks_over_all_runs(drawn: list[DrawnRun], store: Store):
    passed = dict.fromkeys(("task-0", "task-1"), 0)
    scored = dict(passed)
    for run in drawn:
        for trial, tries in run.pairs:
            if trial.subject in passed and tries and tries[-1].outcome.scored:
                reward = tries[-1].reward
                scored[trial.subject] += 1
                passed[trial.subject] += reward >= 1 if reward is not None else tries[-1].outcome == "passed"
    found = {each["task"]: each for each in store.views.fleet.tasks(None, 100)}
    for task in passed:
        assert (found[task]["passed"], found[task]["scored"]) == (passed[task], scored[task])


@pytest.mark.parametrize("number", FEW)
def test_every_command(drawn: list[DrawnRun], store: Store, cli: Callable[..., Any], number: int):
    run = drawn[number]
    shown = cli("show", run.info.id)
    check_overview(shown, run)
    assert (shown["passed"], shown["scored"], shown["errors"]) == (run.passed, run.scored, run.errors)
    folder = Path("reports", run.info.id)
    reported = cli("report", run.info.id, "--output", str(folder))
    check_summary(reported["summary"], run)
    check_summary(json.loads((folder / "summary.json").read_text()), run)
    known = {name: arm for name, arm in run.arms.items() if arm.score}
    compared = cli("compare", run.info.id, run.info.id)
    scores = {each["arm"]: each["b"]["excluded"] for each in compared["scores"] if each["b"]["excluded"]}
    assert {name: pytest.approx(arm.score.value) for name, arm in known.items() if arm.score} == {
        name: each["value"] for name, each in scores.items()
    }
    board = cli("leaderboard", run.info.id)
    assert sum(each["passed"] for each in board["standings"]) == run.passed
    Path("rules.yaml").write_text("- score >= 0.5\n- success_count >= 0\n")
    judged = cli("gate", run.info.id, "--rules", "rules.yaml")["rules"]
    values = [pytest.approx(arm.score.value) for arm in known.values() if arm.score]
    assert judged[0]["estimate"] is None or judged[0]["estimate"]["value"] in values
    assert judged[1]["estimate"]["value"] == run.passed
    history = cli("history", run.info.name)
    at = [each["id"] for each in history["runs"]].index(run.info.id)
    if not history["runs"][at]["left_out"]:
        lines = [each["values"][at] for each in history["lines"] if each["main"] and each["values"][at]]
        shares = sorted(arm.pass_rate.value for arm in known.values() if arm.pass_rate)
        assert sorted(each["value"] for each in lines) == pytest.approx(shares)


@pytest.mark.parametrize("number", FEW[:5])
def test_a_folder_and_a_receipt(drawn: list[DrawnRun], store: Store, home: Path, number: int):
    from proctor.receipt.pack import pack_run
    from proctor.receipt.verify import verify_receipt
    from proctor.render.reporters import write_reports
    from proctor.runfolder.write import RunFolder
    from proctor.store.blobs import open_blobs
    from proctor.verdicts.run.summary import summary

    run = drawn[number]
    folder = home / "folders" / run.info.id
    RunFolder(folder).finish(RunData.from_store(store, run.info.id), write_reports)
    check_summary(json.loads((folder / "summary.json").read_text()), run)
    check_summary(summary(RunData.from_folder(folder)), run)
    packed = pack_run(store, open_blobs(home / "blobs"), run.info.id, home / f"{number}.zip").path
    with ZipFile(packed) as archive:
        (name,) = [each for each in archive.namelist() if each.rpartition("/")[2] == "summary.json"]
        check_summary(json.loads(archive.read(name)), run)
    # Its rewards have no files behind them, which is told; what is counted from the rows agrees.
    assert not [
        each for each in verify_receipt(packed).findings.differences if each.file.endswith("summary.json")
    ]

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from proctor.model.outcome import Outcome
from proctor.model.record import Artifact, Failure
from proctor.verdicts.gate.inputs import input_of_document, input_of_run, is_broken, known_metrics, run_digest


def agents(runs):
    """Two tasks × two rollouts, one of them broken by its sandbox twice, with money, tokens and memory."""
    pairs = []
    for at, (task, outcome) in enumerate(
        [("a", Outcome.PASSED), ("a", Outcome.FAILED), ("b", Outcome.PASSED), ("b", Outcome.SANDBOX_ERROR)]
    ):
        trial = runs.planned(at, {}, subject=task, kind="task", agent="x", rollout=at % 2)
        more = {
            "usage": {"cost_usd": 0.5, "prompt_tokens": 10, "completion_tokens": 5},
            "ledger": {"peak_memory_bytes": 1000 * (at + 1)},
            "artifacts": (Artifact(name="log", digest="d" * 64, size_bytes=300),),
        }
        reward = {Outcome.PASSED: 1.0, Outcome.FAILED: 0.0}.get(outcome)
        failure = Failure(phase="start", type="OSError", message="no") if reward is None else None
        made = runs.attempt(trial, (), outcome=outcome, reward=reward, failure=failure, **more)
        tries = (
            [made]
            if reward is not None
            else [structs.replace(made, number=1), structs.replace(made, number=2)]
        )
        pairs.append((trial, tries))
    return runs.of(pairs, name="agents")


def test_a_run_of_agents_has_counts_totals_and_three_scores(runs):
    run = input_of_run(agents(runs))
    fields = run.fields
    assert (fields["episodes"], fields["success_count"], fields["failure_count"]) == (4, 2, 2)
    assert fields["cost_usd"] == 2.5
    assert fields["tokens_used"] == 75
    assert fields["peak_memory_bytes"] == 4000
    assert fields["run_artifacts"] == {"file_count": 5, "total_bytes": 1500, "avg_bytes": 300}
    assert fields["score"] == {
        "scored": 3, "errors": 1, "errors_excluded": 0.75, "errors_as_zero": 0.5, "best_case": 0.75,
    }  # fmt: skip
    assert fields["pass_rate"]["errors_excluded"] == 0.75
    assert fields["max_wall_clock_s"] == pytest.approx(0.9)
    assert run.reasons == {"failed": 1, "sandbox_error: OSError": 1}
    assert (run.trials, run.missing, run.broken) == (4, 0, 1)
    assert run.results.points[0].samples["cost_usd"] == (0.5, 0.5)
    assert fields["outcomes"]["agent_timeout"] == 0


def test_a_run_of_experiments_has_the_aggregates_of_each_point(runs):
    run = input_of_run(runs.two(), ["duration_s"])
    assert run.reasons == {"agent_timeout: TimeoutError": 1}
    assert run.fields["cost_usd"] is None
    assert len(run.stats) == 15
    assert run.stats["sort_list(size=100, algorithm=timsort)"]["duration_s"]["p95"] > 0
    assert set(run.results.points[0].samples) == {"duration_s"}


def test_peak_memory_of_a_process_goes_by_the_same_name_as_that_of_a_sandbox(runs):
    data = runs.single()
    trial = data.trials[0]
    record = structs.replace(trial.counted, ledger={"peak_rss_bytes": 5000})
    data = replace(data, trials=(structs.replace(trial, attempts=(record,), counted=record),))
    run = input_of_run(data)
    assert run.results.points[0].samples["peak_memory_bytes"] == (5000.0,)
    assert run.fields["peak_memory_bytes"] == 5000
    assert "swaps" in known_metrics(data)


def test_the_digest_follows_the_results_and_nothing_else(runs):
    data = runs.lines()
    assert run_digest(data) == run_digest(runs.renamed(data, name="other", folder="elsewhere"))
    trial = data.trials[0]
    changed = structs.replace(trial.counted, metrics={"duration_s": {"p50": 1.0}})
    other = replace(data, trials=(structs.replace(trial, counted=changed), *data.trials[1:]))
    assert run_digest(other) != run_digest(data)
    unfinished = replace(data, trials=(structs.replace(trial, counted=None), *data.trials[1:]))
    assert run_digest(unfinished) not in {run_digest(data), run_digest(other)}
    assert input_of_run(unfinished).missing == 1


def test_a_document_that_is_odd_is_still_a_side():
    run = input_of_document({"failure_reasons": "many", "total": "x"}, label="odd")
    assert (run.reasons, run.trials, run.results.points) == ({}, 0, ())


@pytest.mark.parametrize(
    ("reason", "broken"),
    [
        ("sandbox_error: OSError", True),
        ("provider_error", True),
        ("failed", False),
        ("timeout after 3s", False),
    ],
)
def test_a_reason_tells_whether_something_was_broken(reason, broken):
    assert is_broken(reason) is broken

"""Harbor itself: run a task as a job, or check a job folder with Harbor's own models and its viewer.

    harbor_job.py run TASK JOB AGENT...
    harbor_job.py check JOB

Runs in an interpreter that has Harbor (3.12 or later); `test_harbor.py` calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from harbor.job import Job
from harbor.metrics.mean import Mean
from harbor.models.job.config import JobConfig
from harbor.models.job.result import JobResult, JobStats
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.utils.pass_at_k import compute_pass_at_k_by_evals
from harbor.utils.trajectory_validator import TrajectoryValidator
from harbor.viewer.scanner import JobScanner

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


async def run(task: Path, job: Path, agents: list[str]) -> None:
    config = JobConfig(
        job_name=job.name,
        jobs_dir=job.parent,
        quiet=True,
        environment=EnvironmentConfig(import_path="harbor_trials:Bwrap"),
        agents=[AgentConfig(name=agent) for agent in agents],
        tasks=[TaskConfig(path=task)],
    )
    with contextlib.redirect_stdout(sys.stderr):
        await (await Job.create(config)).run()


def check(job: Path) -> None:
    """Every document is one of Harbor's, and the statistics are those that Harbor would calculate."""
    JobConfig.model_validate_json((job / "config.json").read_text())
    result = JobResult.model_validate_json((job / "result.json").read_text())
    trials = [check_trial(folder) for folder in sorted(job.iterdir()) if folder.is_dir()]
    stats = JobStats.from_trial_results(trials, n_total_trials=result.n_total_trials)
    passes = compute_pass_at_k_by_evals(trials)
    assert stats.evals.keys() == result.stats.evals.keys()
    for name, found in result.stats.evals.items():
        expected = stats.evals[name]
        assert found.n_trials == expected.n_trials
        assert lists(found.exception_stats) == lists(expected.exception_stats)
        for reward, names in expected.reward_stats.items():
            assert lists(found.reward_stats[reward]) == lists(names)
        rewards = [each.verifier_result and each.verifier_result.rewards for each in of(name, trials)]
        assert found.metrics == [Mean().compute(rewards)]
        assert found.pass_at_k == passes.get(name, {})
    counted = {"n_completed_trials", "n_errored_trials", "n_cancelled_trials", "n_input_tokens", "cost_usd"}
    assert result.stats.model_dump(include=counted) == stats.model_dump(include=counted)
    scanner = JobScanner(job.parent)
    assert scanner.list_trials(job.name) == [trial.trial_name for trial in trials]


def check_trial(folder: Path) -> TrialResult:
    result = TrialResult.model_validate_json((folder / "result.json").read_text())
    assert TrialConfig.model_validate_json((folder / "config.json").read_text()) == result.config
    assert result.trial_name == folder.name
    trajectory = folder / "agent" / "trajectory.json"
    if trajectory.exists():
        validator = TrajectoryValidator()
        assert validator.validate(trajectory), validator.errors
    if result.exception_info:
        assert (folder / "exception.txt").exists()
    return result


def of(group: str, trials: list[TrialResult]) -> list[TrialResult]:
    return [each for each in trials if group in JobStats.from_trial_results([each]).evals]


def lists(found: dict) -> dict:
    return {key: sorted(names) for key, names in found.items()}


if __name__ == "__main__":
    sys.path.insert(0, str(BENCHMARKS))
    what, *arguments = sys.argv[1:]
    if what == "run":
        asyncio.run(run(Path(arguments[0]), Path(arguments[1]), arguments[2:]))
    else:
        check(Path(arguments[0]))

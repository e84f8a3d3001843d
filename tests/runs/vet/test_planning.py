"""Which trials a vetting consists of, and that they are ordinary ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.resources import Resources

from proctor.errors import TaskError, UsageError
from proctor.model.run import Execution
from proctor.model.vetting import Check, check_of
from proctor.runs.planning import plan_spec
from proctor.runs.running import reopen
from proctor.runs.vet.planning import VetRequest, checks_of, create_vetting, left_out
from proctor.settings import load_settings

MakeTask = Callable[..., Path]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def request(*paths: object, **changes: object) -> VetRequest:
    return VetRequest(paths=tuple(map(str, paths)), sandbox="fake", **changes)  # type: ignore[arg-type]


def test_every_check_has_trials_of_its_own_with_keys_of_their_own(make_task: MakeTask):
    job = create_vetting(
        request(make_task("net", network="public"), rollouts=3, repeats=2), Resources(load_settings())
    )
    counts = Counter(check_of(trial) for trial in job.plan.trials)
    assert counts == {
        Check.ORACLE: 3,
        Check.NOP: 3,
        **dict.fromkeys((check for check in Check if check.disturbed), 2),
    }
    assert len({trial.key for trial in job.plan.trials}) == len(job.plan)
    assert [trial.index for trial in job.plan.trials] == list(range(len(job.plan)))
    assert all(check_of(trial) is Check.LOADED for trial in job.plan.trials[-2:])


def test_the_keys_are_those_of_the_spec_so_that_the_run_can_go_on(make_task: MakeTask):
    settings = load_settings()
    job = create_vetting(request(make_task("a"), make_task("b")), Resources(settings))
    assert {trial.key for trial in plan_spec(job.spec, settings).trials} == {
        trial.key for trial in job.plan.trials
    }
    again = reopen(job.info.id, Resources(settings))
    assert again.plan.trials == job.plan.trials
    assert again.info.execution is Execution.VET


def test_checks_that_say_nothing_about_a_task_are_left_out_with_the_reason(make_task: MakeTask):
    make_task("quiet")
    make_task("zoned", environment='env = { TZ = "Europe/Berlin" }\n')
    job = create_vetting(request("tasks"), Resources(load_settings()))
    reasons = {trial.subject: left_out(job.info.spec, trial.subject_digest) for trial in job.plan.trials}
    assert reasons["t/quiet"] == {"network_off": "the task has no network anyway"}
    assert reasons["t/zoned"]["time_zone"] == "the task sets its own time zone, Europe/Berlin"


def test_a_task_named_twice_is_vetted_once(make_task: MakeTask):
    task = make_task("a")
    job = create_vetting(
        request(task, "tasks", checks=(Check.ORACLE,), rollouts=2), Resources(load_settings())
    )
    assert len(job.plan) == 2
    assert checks_of(job.info.spec) == [Check.ORACLE]


def test_a_task_that_cannot_be_read_does_not_stop_the_others(make_task: MakeTask):
    make_task("good")
    (make_task("bad") / "task.toml").write_text("[broken")
    (Path("tasks") / "notes").mkdir()
    job = create_vetting(request("tasks", checks=(Check.NOP,), rollouts=1), Resources(load_settings()))
    assert sorted(trial.subject for trial in job.plan.trials) == ["bad", "t/good"]


def test_what_is_no_task_is_refused(tmp_path: Path, make_task: MakeTask):
    with pytest.raises(TaskError, match="no such task"):
        create_vetting(request("nowhere"), Resources(load_settings()))
    with pytest.raises(UsageError, match="no check is left"):
        create_vetting(request(make_task("a"), checks=(Check.NETWORK_OFF,)), Resources(load_settings()))


def test_what_a_stranger_stored_is_read_with_care():
    assert left_out({"left_out": {"d": "x"}}, "d") == {}
    assert left_out({}, "d") == {}
    assert checks_of({"checks": ["oracle", "unheard of"]}) == [Check.ORACLE]
    assert checks_of({}) == list(Check)

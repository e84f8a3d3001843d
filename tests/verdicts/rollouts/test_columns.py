from __future__ import annotations

import pytest
from tests.made_rollouts import Study

from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.runfolder.read import RunData
from proctor.store.open import open_store
from proctor.verdicts.rollouts.columns import layout_of, rollouts_of
from proctor.verdicts.rollouts.scores import rollouts
from proctor.verdicts.rollouts.words import headline


@pytest.fixture
def stored(tmp_path):
    study = Study().cell("b", [0.0, 0.5, "sandbox_error"], "x", model="m")
    study.cell("a", [1.0, 1.0, None], "x", model="m").cell(
        "a", [0.0], "y", overrides={"agent_options": {"n": 1}}
    )
    study.cell("a", [1.0, "agent_timeout"], "y", overrides={"agent_options": {"n": 2}})
    data = study.data()
    with open_store(str(tmp_path / "p.db")) as store:
        info = RunInfo(
            id="run-1",
            name="s",
            kind="task",
            status=RunStatus.DONE,
            created_at=1.0,
            seed=0,
            total=len(data.trials),
        )
        attempts = [(record, True) for each in data.trials for record in each.attempts]
        store.import_run(info, [each.planned for each in data.trials], attempts)
        yield store


def test_columns_give_the_same_table_as_records(stored):
    whole = rollouts(RunData.from_store(stored, "run-1"))
    found = rollouts_of(stored, stored.run("run-1"))
    assert found.table.rows == whole.table.rows
    assert found.table.arms == whole.table.arms
    assert [arm.passes for arm in found.arms] == [arm.passes for arm in whole.arms]
    assert [arm.rewards for arm in found.arms] == [arm.rewards for arm in whole.arms]
    assert [arm.outcomes for arm in found.arms] == [arm.outcomes for arm in whole.arms]
    assert headline(found) == headline(whole)


def test_a_layout_knows_the_trials_of_every_place_in_order_of_rollout(stored):
    layout = layout_of(stored, stored.run("run-1"))
    places = {(row.label, arm.label): at for (row, arm), at in zip(layout.places, layout.trials, strict=True)}
    assert places["b", "x · m"] == [0, 1, 2]
    assert places["a", "x · m"] == [3, 4, 5]
    assert sorted(map(len, places.values())) == [1, 2, 3, 3]

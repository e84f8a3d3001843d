"""What an attempt is given by the executor of its run."""

from __future__ import annotations

from proctor.model.plan import PlannedTrial
from proctor.model.spec import Spec
from proctor.model.trial import Lease
from proctor.runs.executors import model_access
from proctor.settings import Settings

LEASE = Lease("r", "k", 0, "w", 1, 1, 0.0)


def trial(model: str | None) -> PlannedTrial:
    return PlannedTrial(
        key="k", index=0, kind="task", subject="t", subject_digest="d", body=0, agent="terminal", model=model
    )


def test_each_attempt_has_its_own_model_and_the_spec_s_budget():
    settings = Settings(model_base_url="http://model", model_api_key="key", ca_bundle="/ca.pem")
    give = model_access(Spec(name="n", budget_usd=2.5), settings)
    one, other = give(trial("small"), LEASE), give(trial("large"), LEASE)
    assert (one.model, other.model) == ("small", "large")
    assert (one.base_url, one.token, one.ca_bundle) == ("http://model", "key", "/ca.pem")
    assert one.budget_usd == 2.5


def test_without_a_service_there_is_no_address():
    access = model_access(Spec(name="n"), Settings())(trial(None), LEASE)
    assert (access.base_urls, access.base_url, access.token, access.budget_usd) == ({}, "", "", None)

from __future__ import annotations

import pytest

from proctor.engine.retry import retry_delay_s
from proctor.model.outcome import Blame, Outcome
from proctor.model.record import Failure
from proctor.model.spec import Retries


@pytest.mark.parametrize("outcome", [each for each in Outcome if not each.retryable])
def test_what_is_not_the_machines_fault_is_never_retried(outcome):
    assert retry_delay_s(outcome, 1, Retries(infrastructure=9, provider=9)) is None


@pytest.mark.parametrize("outcome", [each for each in Outcome if each.blame is Blame.INFRASTRUCTURE])
def test_the_delay_doubles_up_to_its_limit_and_then_ends(outcome):
    policy = Retries(infrastructure=4, backoff_s=1.0, max_backoff_s=5.0)
    assert [retry_delay_s(outcome, n, policy) for n in range(1, 6)] == [1.0, 2.0, 4.0, 5.0, None]


def test_what_cannot_get_better_is_not_retried():
    lasting = Failure(phase="image", type=Failure.lasting_type("ImageError"), message="no such image")
    assert lasting.in_words == "no such image"
    assert retry_delay_s(Outcome.IMAGE_ERROR, 1, Retries(), lasting) is None
    passing = Failure(phase="image", type="ImageError", message="the registry did not answer")
    assert retry_delay_s(Outcome.IMAGE_ERROR, 1, Retries(), passing) == 1.0


def test_no_retries_means_none():
    assert retry_delay_s(Outcome.SANDBOX_ERROR, 1, Retries(infrastructure=0)) is None

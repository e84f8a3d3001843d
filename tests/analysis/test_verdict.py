from __future__ import annotations

import pytest

from proctor.analysis.verdict import Verdict, judge, overall


@pytest.mark.parametrize(
    ("low", "gain", "high", "p", "expected"),
    [
        (-0.30, -0.20, -0.10, 0.001, Verdict.WORSE),
        (0.10, 0.20, 0.30, 0.001, Verdict.BETTER),
        (-0.30, -0.20, -0.10, 0.2, Verdict.INCONCLUSIVE),
        (-0.04, 0.00, 0.04, 0.9, Verdict.SAME),
        (-0.04, -0.02, -0.01, 0.001, Verdict.SMALL),
        (-0.04, 0.10, 0.24, 0.2, Verdict.NO_WORSE),
        (-0.20, 0.00, 0.20, 0.9, Verdict.INCONCLUSIVE),
        (-0.07, -0.04, -0.01, 0.001, Verdict.INCONCLUSIVE),
    ],
)
def test_the_verdicts_at_a_margin_of_five_percent(low, gain, high, p, expected):
    assert judge(gain=gain, low=low, high=high, p_value=p, margin=0.05) is expected


def test_the_worst_news_wins_and_doubt_comes_second():
    assert overall([Verdict.SAME, Verdict.WORSE, Verdict.INCONCLUSIVE]) is Verdict.WORSE
    assert overall([Verdict.BETTER, Verdict.INCONCLUSIVE]) is Verdict.INCONCLUSIVE
    assert overall([Verdict.SAME, Verdict.BETTER]) is Verdict.BETTER
    assert overall([Verdict.SAME]) is Verdict.SAME
    assert overall([]) is Verdict.INCONCLUSIVE

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import SpecError, UsageError
from proctor.verdicts.gate.grammar import parse_rule
from proctor.verdicts.gate.rules import NotWorse, OfBaseline, Reasons, Threshold


@pytest.mark.parametrize(
    ("text", "path", "operator", "limit"),
    [
        ("max_wall_clock_s <= 15", "max_wall_clock_s", "<=", 15.0),
        ("metrics.duration_s.p95 <= 0.2", "metrics.duration_s.p95", "<=", 0.2),
        ("metrics.duration_s.p95 <= 200ms", "metrics.duration_s.p95", "<=", 0.2),
        ("failure_count == 0", "failure_count", "==", 0.0),
        ("run_artifacts.total_bytes <= 2_000_000", "run_artifacts.total_bytes", "<=", 2e6),
        ("run_artifacts.total_bytes < 2 MiB", "run_artifacts.total_bytes", "<", 2.0 * 2**20),
        ("cost_usd <= $5", "cost_usd", "<=", 5.0),
        ("cost <= 5 USD", "cost_usd", "<=", 5.0),
        ("score >= 50%", "score", ">=", 0.5),
        ("p95 latency <= 0.2", "metrics.duration_s.p95", "<=", 0.2),
        ("latency <= 1min", "metrics.duration_s.p50", "<=", 60.0),
        ("peak memory <= 2GB", "peak_memory_bytes", "<=", 2e9),
        ("run.status == done", "run.status", "==", "done"),
        ("run.name != 'a b'", "run.name", "!=", "a b"),
        ("metrics.ok == true", "metrics.ok", "==", True),
        ("x > -1e-3", "x", ">", -0.001),
    ],
)
def test_a_threshold_has_a_field_an_operator_and_a_limit(text, path, operator, limit):
    rule = parse_rule(text)
    assert isinstance(rule, Threshold)
    assert (rule.path, rule.operator) == (path, operator)
    assert type(rule.limit) is type(limit)
    assert rule.limit == (pytest.approx(limit) if isinstance(limit, float) else limit)


@pytest.mark.parametrize(
    ("text", "limit", "of_ten"),
    [
        ("failure_count <= baseline", OfBaseline(), 10),
        ("cost_usd <= baseline + 10%", OfBaseline(factor=1.1), 11),
        ("cost_usd <= baseline +$2", None, None),
        ("max_wall_clock_s <= baseline + 500ms", OfBaseline(add=0.5), 10.5),
        ("success_count >= baseline - 2", OfBaseline(add=-2), 8),
        ("success_count >= baseline -2", OfBaseline(add=-2), 8),
    ],
)
def test_a_limit_may_be_the_baselines_own_value(text, limit, of_ten):
    if limit is None:
        with pytest.raises(UsageError):
            parse_rule(text)
        return
    rule = parse_rule(text)
    assert isinstance(rule, Threshold)
    assert isinstance(rule.limit, OfBaseline)
    assert rule.limit.limit(10) == pytest.approx(of_ten)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("no new failure reasons", None),
        ("No new failure reason", None),
        ("failure_reasons in [agent_timeout, failed]", ("agent_timeout", "failed")),
        ("failure reasons in ['failed: ValueError']", ("failed: ValueError",)),
        ("failure_reasons in []", ()),
    ],
)
def test_failure_reasons_are_those_of_the_baseline_or_a_list(text, allowed):
    rule = parse_rule(text)
    assert isinstance(rule, Reasons)
    assert rule.allowed == allowed


@pytest.mark.parametrize(
    ("text", "metric", "statistic", "higher", "margin", "level", "these"),
    [
        ("score not worse than baseline by more than 3pp at 95%", "reward", "", False, 0.03, 0.95, None),
        ("score not worse than baseline by more than 3 pp", "reward", "", False, 0.03, 0.95, None),
        (
            "pass rate not lower than the baseline by more than 2 percentage points at 90% for these tasks",
            "pass_rate", "", False, 0.02, 0.9, True,
        ),
        ("score not worse than 3pp for tasks like these", "reward", "", False, 0.03, 0.95, False),
        ("p95 latency not slower than 5%", "duration_s", "p95", True, 0.05, 0.95, None),
        ("duration_s not slower than baseline by more than 5%", "duration_s", "", True, 0.05, 0.95, None),
        ("duration_s.p99 not worse than 7.5%", "duration_s", "p99", True, 0.075, 0.95, None),
        ("metrics.ops_per_s not slower than 5%", "ops_per_s", "", False, 0.05, 0.95, None),
        ("rss_bytes not larger than baseline by more than 10%", "rss_bytes", "", True, 0.1, 0.95, None),
        ("mean cost not more expensive than 20%", "cost_usd", "mean", True, 0.2, 0.95, None),
        ("hit_rate not worse than 1%", "hit_rate", "", False, 0.01, 0.95, None),
        ("fps not worse than 1%", "fps", "", False, 0.01, 0.95, None),
        ("depth not lower than 1%", "depth", "", False, 0.01, 0.95, None),
        ("median cpu time not slower than 5% at 99%", "cpu_s", "p50", True, 0.05, 0.99, None),
    ],
)  # fmt: skip
def test_a_comparison_reads_like_a_sentence(text, metric, statistic, higher, margin, level, these):
    rule = parse_rule(text)
    assert isinstance(rule, NotWorse)
    assert (rule.metric, rule.statistic, rule.higher_is_worse) == (metric, statistic, higher)
    assert (rule.margin, rule.level, rule.these_tasks) == (pytest.approx(margin), pytest.approx(level), these)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a rule is a threshold"),
        ("scor is fine", "did you mean 'score'?"),
        ("x = 3", "equality is '=='"),
        ("x <=", "ends where a number is expected"),
        ("<= 3", "starts with what it judges"),
        ("x <= done", "needs a number"),
        ("x <= [", "found '[' where a number"),
        ("x <= 3 4", "has no unit"),
        ("max_s <= 3 sec", "found 'sec' where a unit of 'max_s' is expected"),
        ("size_bytes <= 3 Mib", "did you mean 'MiB'?"),
        ("x <= $5", "not in dollars"),
        ("x <= baseline * 2", "'*' is not allowed"),
        ("x <= baseline 2", "where + or - is expected"),
        ("x <= baseline + y", "where a number is expected"),
        ("x <= 5 § 6", "is not allowed"),
        ("no new failures", "did you mean 'failure'?"),
        ("no new failure reasons please", "the end is expected"),
        ("failure_reasons in agent_timeout", "where '[' is expected"),
        ("failure_reasons in [a b]", "where ',' is expected"),
        ("failure_reasons in [3]", "a failure reason is expected"),
        ("failure_reasons in [a", "ends where"),
        ("score not wrose than baseline by more than 3pp", "did you mean 'worse'?"),
        ("score not worse then baseline by more than 3pp", "did you mean 'than'?"),
        ("score not worse than baseline", "say how much"),
        ("score not worse than basline by more than 3pp", "did you mean 'baseline'?"),
        ("score not worse than baseline by more than 3%", "write '3pp'"),
        ("latency not slower than 3pp", "write '3%'"),
        ("latency not slower than -3%", "how much"),
        ("latency not slower than 3000%", "out of range"),
        ("score not worse than 3pp at 95", "where '%' is expected"),
        ("score not worse than 3pp at most", "a level such as 95%"),
        ("score not worse than 3pp at 120%", "out of range"),
        ("score not worse than 3pp fro these tasks", "did you mean 'for'?"),
        ("cost not worse than 3% for these tasks", "the claim can be chosen for scores only"),
        ("score not worse than 3pp for those tasks", "did you mean 'these'?"),
        ("depth not worse than 3%", "nothing says whether more of 'depth' is better or worse"),
        ("latncy not slower than 5%", "did you mean 'latency'?"),
        ("wall clok not slower than 5%", "did you mean 'wall clock'?"),
        ("peak_memory_bytes not slower than 5%", "is not a time"),
        ("not slower than 5%", "starts with what it judges"),
        ("x" * 501 + " <= 1", "longer than 500"),
    ],
)  # fmt: skip
def test_a_slip_is_named_with_the_likely_word(text, words):
    with pytest.raises(SpecError) as caught:
        parse_rule(text)
    assert words in str(caught.value)


@given(st.text(max_size=60))
def test_no_text_whatever_does_more_than_be_refused(text):
    with suppress(UsageError):
        parse_rule(text)


WORDS = [
    "score", "p95", "latency", "not", "worse", "slower", "than", "baseline", "by", "more", "3", "pp", "%",
    "5", "at", "95", "for", "these", "tasks", "<=", "==", "[", "]", ",", "in", "failure_reasons", "no", "new",
    "+", "-", "$", "x.y_s", "ms",
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join))
def test_no_jumble_of_its_own_words_does_more_either(text):
    with suppress(UsageError):
        parse_rule(text)

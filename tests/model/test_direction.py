from __future__ import annotations

import pytest

from proctor.model.direction import Direction, declared_directions, direction_of


@pytest.mark.parametrize(
    "metric",
    [
        "accuracy",
        "f1",
        "fps",
        "hit_rate",
        "iops",
        "observes_per_sec",
        "ops_per_s",
        "precision",
        "qps",
        "recall",
    ],
)
def test_names_that_say_that_more_is_better(metric):
    assert direction_of(metric) is Direction.HIGHER


@pytest.mark.parametrize(
    "metric",
    ["duration_s", "cpu_s", "latency_ms", "rss_bytes", "rss_bytes_per_step", "cost_usd", "prompt_tokens"],
)
def test_names_that_say_that_less_is_better(metric):
    assert direction_of(metric) is Direction.LOWER


@pytest.mark.parametrize("metric", ["depth", "drops", "errors_per_s", "hits", "ratio", "recalled"])
def test_of_other_names_nothing_is_guessed(metric):
    assert direction_of(metric) is None


def test_what_is_declared_goes_before_the_name():
    spec = {
        "experiments": [
            {"better": {"depth": "higher", "duration_s": "higher", "x": "lower"}},
            {"better": {"x": "higher"}},
        ]
    }
    declared = declared_directions(spec)
    assert declared == {"depth": Direction.HIGHER, "duration_s": Direction.HIGHER}
    assert direction_of("depth", declared) is direction_of("duration_s", declared) is Direction.HIGHER
    assert direction_of("x", declared) is None

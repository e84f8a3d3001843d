"""Options are part of who an agent is, and names say so where they must."""

from __future__ import annotations

from typing import Any

from proctor.model.arms import (
    Arm,
    arm_of,
    differing,
    named,
    options_text,
    shown_options,
    swept_variables,
    whole_names,
)
from proctor.model.plan import PlannedTrial


def arm(options: dict[str, Any], agent: str = "terminal", model: str | None = None) -> Arm:
    return Arm(agent, model, options_text(options))


def test_agents_that_differ_in_an_option_have_two_names():
    cold, warm = arm({"options": {"temperature": 0}}), arm({"options": {"temperature": 1}})
    assert list(named([cold, warm, cold]).values()) == [
        "terminal (temperature=0)",
        "terminal (temperature=1)",
    ]


def test_options_that_all_share_are_not_shown():
    first = arm({"options": {"temperature": 0, "top_p": 1}}, model="a")
    second = arm({"options": {"temperature": 0, "top_p": 1}}, model="b")
    assert list(named([first, second]).values()) == ["terminal/a", "terminal/b"]
    third = arm({"options": {"temperature": 0, "top_p": 0.5}}, model="b")
    assert list(named([first, third]).values()) == ["terminal (top_p=1)/a", "terminal (top_p=0.5)/b"]


def test_an_option_that_only_one_has_is_shown_there():
    assert differing([options_text({"a": 1}), options_text({})]) == ["a=1", ""]


def test_options_that_end_alike_are_shown_with_their_path():
    first, second = {"x": {"n": 1}, "y": {"n": 1}}, {"x": {"n": 2}, "y": {"n": 3}}
    assert differing(list(map(options_text, (first, second)))) == ["x.n=1, y.n=1", "x.n=2, y.n=3"]


def test_secret_values_are_never_in_a_name_and_still_two_agents():
    first, second = arm({"api_key": "sk-one"}), arm({"api_key": "sk-two"})
    assert list(named([first, second]).values()) == ["terminal (1)", "terminal (2)"]
    assert "sk-one" not in whole_names([first])[first]
    assert shown_options(first.options) == {"api_key": "***"}
    assert shown_options(options_text({"max_tokens": 5})) == {"max_tokens": "5"}


def test_long_values_are_cut_and_whole_names_stay_distinct():
    first, second = ({"command": f"{'work ' * 30}{end}"} for end in ("a", "b"))
    assert all(len(name) < 80 for name in named([arm(first), arm(second)]).values())
    assert len(set(whole_names([arm(first), arm(second)]).values())) == 2
    assert list(whole_names([arm({"temperature": 0}, model="m")]).values()) == ["terminal (temperature=0)/m"]
    assert list(whole_names([arm({}, agent="oracle")]).values()) == ["oracle"]


def test_a_version_is_in_a_name_only_where_nothing_else_tells_two_arms_apart():
    old, new = (Arm("terminal", "m", "{}", version) for version in ("1.0", "1.1"))
    assert list(named([old]).values()) == list(whole_names([new]).values()) == ["terminal/m"]
    assert list(named([old, new]).values()) == ["terminal (version=1.0)/m", "terminal (version=1.1)/m"]
    assert list(whole_names([old, new]).values()) == list(named([old, new]).values())


def test_a_swept_variable_makes_two_arms_and_stands_behind_the_name():
    trials = [
        PlannedTrial(
            key=str(at), index=at, kind="task", subject="t", subject_digest="d", body=0, agent="terminal",
            overrides={"environment_variables": {"MODE": mode, "SAME": "1"}},
        )
        for at, mode in enumerate(("fast", "slow"))
    ]  # fmt: skip
    swept = swept_variables(trials)
    assert swept == ("MODE",)
    names = named(arm_of(trial, swept) for trial in trials)
    assert list(names.values()) == ["terminal MODE=fast", "terminal MODE=slow"]

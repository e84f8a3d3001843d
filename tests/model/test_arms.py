"""Options are part of who an agent is, and names say so where they must."""

from __future__ import annotations

from typing import Any

from proctor.model.arms import Arm, differing, named, options_text, shown_options, whole_name


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
    assert "sk-one" not in whole_name(first)
    assert shown_options(first.options) == {"api_key": "***"}
    assert shown_options(options_text({"max_tokens": 5})) == {"max_tokens": "5"}


def test_long_values_are_cut_and_whole_names_stay_distinct():
    first, second = ({"command": f"{'work ' * 30}{end}"} for end in ("a", "b"))
    assert all(len(name) < 80 for name in named([arm(first), arm(second)]).values())
    assert whole_name(arm(first)) != whole_name(arm(second))
    assert whole_name(arm({"temperature": 0}, model="m")) == "terminal (temperature=0)/m"
    assert whole_name(arm({}, agent="oracle")) == "oracle"

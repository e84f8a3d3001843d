"""What a spec says in `agent_options` fits the agent, or is refused with the option's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from proctor.agents.registry import check_options, make_agent
from proctor.errors import UsageError


class Anyone:
    """Takes a bit of everything."""

    def __init__(
        self,
        *,
        name: str,
        count: int = 1,
        share: float | None = None,
        flag: bool = False,
        env: Mapping[str, str] | None = None,
        words: Sequence[str] = (),
        sizes: list[int] | None = None,
        free: Any = None,
    ) -> None:
        pass


GOOD = {"name": "a", "count": 2, "share": 1, "flag": True, "env": {"A": "b"}, "words": ["x"], "sizes": [1]}


def test_what_fits_is_taken():
    check_options("any", Anyone, GOOD)
    check_options("any", Anyone, {"name": "a", "share": None, "free": object()})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs the option 'name'"),
        ({"name": "a", "cuont": 1}, "'cuont' is not an option of agent 'any'; did you mean 'count'?"),
        ({"name": 3}, "'name' of agent 'any' must be text, not 3"),
        ({"name": "a", "count": True}, "must be a whole number, not True"),
        ({"name": "a", "share": "x"}, "must be a number or null, not 'x'"),
        ({"name": "a", "flag": 1}, "must be true or false, not 1"),
        ({"name": "a", "env": "x"}, "must be a mapping of names to texts or null, not 'x'"),
        ({"name": "a", "env": {"A": [1]}}, "'env' of agent 'any'"),
        ({"name": "a", "words": "x"}, "must be a list, not 'x'"),
        ({"name": "a", "sizes": ["x"]}, "must be a list or null"),
    ],
)
def test_what_does_not_fit_is_named(options, words):
    with pytest.raises(UsageError) as caught:
        check_options("any", Anyone, options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("agent", "options"),
    [
        ("command", {"command": "true", "env": "x"}),
        ("command", {"command": ["true"]}),
        ("command", {"command": "true", "install_timeout_s": "soon"}),
        ("terminal", {"options": []}),
        ("replay", {"trajectory": 3}),
        ("oracle", {"anything": 1}),
    ],
)
def test_the_built_in_agents_refuse_what_they_cannot_use(agent, options):
    with pytest.raises(UsageError, match="agent_options"):
        make_agent(agent, options)


def test_an_agent_that_raises_while_it_is_made_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "odd_agent.py").write_text(
        "class Odd:\n    def __init__(self): raise ZeroDivisionError('no')\n"
    )
    (tmp_path / "broken_agent.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="cannot be made with these agent_options: ZeroDivisionError"):
        make_agent("odd_agent:Odd")
    with pytest.raises(UsageError, match="cannot be imported: ZeroDivisionError"):
        make_agent("broken_agent:Odd")


def test_a_function_without_annotations_is_not_judged():
    check_options("any", lambda **_: None, {"whatever": object()})

"""Orders carry arguments that fit, whatever the defaults are made of; the child reports what does not fit."""

from __future__ import annotations

import marshal
from pathlib import Path
from typing import Any

import pytest

from proctor.experiments.base import Experiment, Registered, construct
from proctor.trial.forkserver.lane import Fitting

_SENTINEL = ("a", "tuple")


class Plain(Experiment):
    def __init__(self, size: int = 3, name: str = "x", pair: Any = _SENTINEL) -> None:
        self.given = (size, name, pair)

    def execute_once(self, context: Any) -> dict[str, Any]:
        return {}


class Odd(Plain):
    def __init__(self, folder: Path = Path("here"), size: int = 3) -> None:
        self.given = (folder, size)


class Positional(Plain):
    def __init__(self, folder: Path = Path("here"), size: int = 3, /) -> None:
        self.given = (folder, size)


class Whole(Plain):
    def __init__(self, params: dict[str, Any]) -> None:
        self.given = tuple(sorted(params.items()))


def made(cls: type[Plain], params: dict[str, Any]) -> tuple[Any, ...] | None:
    """What the constructor was given in a child; None when the child has to look itself."""
    order = Fitting(Registered(slug="odd", cls=cls)).order({"params": params, "seed": 1})
    request = marshal.loads(order)
    assert (request["params"], request["seed"]) == (params, 1)
    if request["fitted"] is None:
        return None
    experiment = construct(cls, *request["fitted"])
    assert isinstance(experiment, Plain)
    return experiment.given


@pytest.mark.parametrize(
    ("cls", "params", "given"),
    [
        (Plain, {}, (3, "x", _SENTINEL)),
        (Plain, {"size": 5, "pair": ["a", "tuple"]}, (5, "x", _SENTINEL)),
        (Plain, {"size": "five"}, None),
        (Plain, {"unknown": 1}, None),
        (Odd, {"size": 5}, (Path("here"), 5)),
        (Whole, {"any": 1}, (("any", 1),)),
    ],
)
def test_what_fits_is_sent_and_what_does_not_is_left_to_the_child(cls, params, given):
    assert made(cls, params) == given


def test_a_default_that_cannot_be_sent_and_must_be_given_is_left_to_the_child():
    assert made(Positional, {"size": 5}) is None


def test_a_default_is_the_constructors_own_object():
    fitted = Fitting(Registered(slug="odd", cls=Plain)).order({"params": {"pair": ["a", "tuple"]}})
    assert "pair" not in marshal.loads(fitted)["fitted"][2]

"""Quick constructors do what the constructors of dataclasses do."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, field, replace
from typing import Any

import pytest

from proctor.model.quick import quick


@quick
@dataclass(frozen=True, slots=True)
class Place:
    """By position, with a default."""

    x: float
    y: float = 0.0


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """By name, with a default and a factory."""

    name: str
    count: int = 1
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name} × {self.count}"


@quick
@dataclass(frozen=True, slots=True)
class Mixed:
    """A field that is given by name stands before one that is given by position."""

    named: int = field(kw_only=True, default=3)
    placed: int = 0


def test_fields_and_defaults_are_as_written() -> None:
    assert (Place(1.0).x, Place(1.0).y, Place(1.0, 2.0).y, Place(y=3.0, x=1.0).y) == (1.0, 0.0, 2.0, 3.0)
    assert asdict(Thing(name="a")) == {"name": "a", "count": 1, "extra": {}}
    assert Mixed(5) == Mixed(placed=5, named=3)


def test_every_instance_has_a_default_of_its_own() -> None:
    assert Thing(name="a").extra is not Thing(name="b").extra
    given = {"a": 1}
    assert Thing(name="a", extra=given).extra is given


def test_an_instance_is_of_its_class_and_frozen() -> None:
    found = Thing(name="a", count=2)
    assert type(found) is Thing
    assert found.label == "a × 2"
    with pytest.raises(FrozenInstanceError):
        found.name = "b"  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        object.__setattr__(found, "other", 1)


def test_arguments_are_checked_as_by_any_function() -> None:
    with pytest.raises(TypeError, match="name"):
        Thing()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Thing("a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="other"):
        Thing(name="a", other=1)  # type: ignore[call-arg]


def test_it_can_be_replaced_copied_pickled_compared_and_hashed() -> None:
    found = Thing(name="a", count=2)
    assert replace(found, count=3) == Thing(name="a", count=3)
    assert copy.deepcopy(found) == found == pickle.loads(pickle.dumps(found))
    assert hash(Place(1.0)) == hash(Place(1.0, 0.0))
    assert len({Place(1.0), Place(1.0), Place(2.0)}) == 2


def test_tools_see_the_usual_signature() -> None:
    assert list(inspect.signature(Thing).parameters) == ["name", "count", "extra"]
    assert Thing.__init__.__qualname__ == "Thing.__init__"
    assert Thing.__init__.__annotations__["name"] == "str"

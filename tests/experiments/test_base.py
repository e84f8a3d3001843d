"""The registry and what every experiment has without asking."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import ClassVar

import pytest

from proctor.errors import UsageError
from proctor.experiments.base import REGISTRY, Experiment, ExperimentContext, register_experiment


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


class Plain(Experiment):
    """Does nothing.

    And says so at length.
    """

    def execute_once(self, context):
        return {}


def test_a_registered_class_is_found_under_its_slug_with_its_docstring_as_summary():
    assert register_experiment("plain", tags=["a", "b"])(Plain) is Plain
    entry = REGISTRY["plain"]
    assert (entry.cls, entry.summary, entry.tags) == (Plain, "Does nothing.", ("a", "b"))
    assert entry.file == __file__
    assert entry.place.startswith(f"{__file__}:")


def test_a_summary_given_wins_and_one_tag_may_be_plain_text():
    register_experiment("plain", summary="other", tags="alone")(Plain)
    assert REGISTRY["plain"].summary == "other"
    assert REGISTRY["plain"].tags == ("alone",)


def test_a_slug_registered_twice_names_both_places():
    class Other(Experiment):
        def execute_once(self, context):
            return {}

    register_experiment("twice")(Plain)
    first = REGISTRY["twice"].place
    with pytest.raises(UsageError) as caught:
        register_experiment("twice")(Other)
    second = f"{__file__}:{int(first.rpartition(':')[2]) + 3}"
    assert f"'twice' is registered twice: at {first} and at {second}" in str(caught.value)
    assert REGISTRY["twice"].cls is Plain


def test_registering_the_same_class_again_is_fine():
    register_experiment("again")(Plain)
    register_experiment("again")(Plain)
    again = type("Plain", (Experiment,), {"execute_once": Plain.execute_once, "__qualname__": "Plain"})
    register_experiment("again")(again)
    assert REGISTRY["again"].cls is again


@pytest.mark.parametrize("slug", ["", "with space", "../up", "-x", 3, None, Plain])
def test_what_cannot_be_typed_in_a_spec_cannot_be_a_slug(slug):
    with pytest.raises(UsageError, match="is not a valid experiment name"):
        register_experiment(slug)


def test_a_class_that_is_no_experiment_is_refused():
    with pytest.raises(UsageError, match="'NotOne' is not an experiment"):
        register_experiment("x")(type("NotOne", (), {}))
    with pytest.raises(UsageError, match="is not an experiment"):
        register_experiment("x")(lambda: None)


def test_an_experiment_without_execute_once_is_refused():
    with pytest.raises(UsageError, match="has no execute_once"):
        register_experiment("x")(type("Hollow", (Experiment,), {}))


def test_an_experiment_made_by_hand_has_its_params_and_the_declared_defaults():
    class Declared(Plain):
        param_schema: ClassVar = {"n": (int, 3), "m": {"type": "int", "required": False}, "k": int}

    assert Declared().params == {"n": 3}
    assert Declared(n=4).params == {"n": 4}
    assert Declared({"n": 5, "k": 1}).params == {"n": 5, "k": 1}
    assert Declared(params={"n": 6}).params == {"n": 6}
    assert Plain({"any": 1}).params == {"any": 1}


def test_setup_and_teardown_may_be_left_out():
    experiment, context = Plain(), ExperimentContext()
    assert experiment.setup(context) is None
    assert experiment.execute_once(context) == {}
    assert experiment.teardown(context) is None


def test_contexts_share_nothing():
    one, other = ExperimentContext(), ExperimentContext()
    one.extras["x"] = 1
    one.iteration_index += 1
    assert (other.extras, other.iteration_index) == ({}, 0)


def test_importing_the_base_stays_light():
    code = (
        "import sys; import proctor.experiments.base; "
        "heavy = {'numpy', 'asyncio', 'click', 'yaml', 'sqlite3', 'json', 'difflib', 'tomllib', 'random'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

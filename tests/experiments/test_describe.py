"""Experiments of every style become instances with the right parameters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from proctor.errors import ParamError, UsageError
from proctor.experiments.base import Experiment, Registered
from proctor.experiments.describe import info, instantiate, parameters


def entry(cls: type[Experiment], slug: str = "mine") -> Registered:
    return Registered(slug=slug, cls=cls, file=__file__, line=1)


class Base(Experiment):
    def execute_once(self, context):
        return {}


class NewStyle(Base):
    param_schema: ClassVar = {"n": {"type": "int", "default": 3}, "rate": (float, 1.0)}


class NamedWithoutSuper(Base):
    def __init__(self, num_agents: int = 100, *, steps=50, mode: Literal["a", "b"] = "a"):
        self.got = (num_agents, steps, mode)


class NamedWithSuper(Base):
    def __init__(self, num_agents: int = 100, *, steps=50):
        super().__init__()
        self.got = (num_agents, steps)


class PassesParamsUp(Base):
    def __init__(self, num_agents: int = 100):
        super().__init__({"num_agents": num_agents, "derived": num_agents * 2})


class WholeMapping(Base):
    def __init__(self, params=None):
        super().__init__(params or {})
        self.got = dict(self.params)


class WholeMappingWithSchema(WholeMapping):
    param_schema: ClassVar = {
        "properties": {"n": {"type": "integer", "default": 2}, "hint": {"type": "string"}},
        "required": ["n"],
    }


class SchemaAndNames(Base):
    param_schema: ClassVar = {"n": int, "note": {"type": "str", "default": "-"}}

    def __init__(self, n=7):
        self.n = n


class TakesMore(Base):
    def __init__(self, first, /, n: int = 1, **more):
        super().__init__(**more)
        self.got = (first, n, more)


class OddDefaults(Base):
    def __init__(self, where: Path = Path("x"), sizes=(1, 2), marker=object()):  # noqa: B008 - as people write it
        self.got = (where, sizes, marker)


def test_the_new_style_gets_its_params_with_defaults():
    experiment = instantiate(entry(NewStyle), {"rate": 2})
    assert experiment.params == {"n": 3, "rate": 2.0}


def test_named_parameters_work_whether_or_not_super_is_called():
    experiment = instantiate(entry(NamedWithoutSuper), {"steps": 5, "mode": "b"})
    assert experiment.got == (100, 5, "b")
    assert experiment.params == {"num_agents": 100, "steps": 5, "mode": "b"}
    experiment = instantiate(entry(NamedWithSuper), {"num_agents": 9})
    assert experiment.got == (9, 50)
    assert experiment.params == {"num_agents": 9, "steps": 50}


def test_what_a_constructor_adds_to_params_stays():
    assert instantiate(entry(PassesParamsUp), {}).params == {"num_agents": 100, "derived": 200}


def test_a_constructor_that_takes_the_whole_mapping_gets_it():
    assert instantiate(entry(WholeMapping), {"x": 1}).got == {"x": 1}
    assert parameters(entry(WholeMapping)) == ({}, True)


def test_an_optional_parameter_without_default_stays_absent():
    assert instantiate(entry(WholeMappingWithSchema), {}).got == {"n": 2}
    assert instantiate(entry(WholeMappingWithSchema), {"hint": "h"}).got == {"n": 2, "hint": "h"}
    with pytest.raises(ParamError, match="hnit"):
        instantiate(entry(WholeMappingWithSchema), {"hnit": "h"})


def test_the_signature_gives_the_default_that_the_schema_lacks():
    experiment = instantiate(entry(SchemaAndNames), {})
    assert (experiment.n, experiment.params) == (7, {"n": 7, "note": "-"})


def test_positional_only_and_further_keyword_arguments_are_passed():
    experiment = instantiate(entry(TakesMore), {"first": "f", "other": 2})
    assert experiment.got == ("f", 1, {"other": 2})
    assert experiment.params == {"first": "f", "n": 1, "other": 2}


def test_a_default_that_json_cannot_hold_reaches_the_constructor_unchanged():
    where, sizes, marker = instantiate(entry(OddDefaults), {}).got
    assert (where, sizes, type(marker)) == (Path("x"), (1, 2), object)
    assert instantiate(entry(OddDefaults), {"sizes": [3]}).got[1] == [3]


def test_parameters_that_do_not_fit_are_refused_before_the_constructor_runs():
    with pytest.raises(ParamError, match="num_agents"):
        instantiate(entry(NamedWithSuper), {"num_agnets": 1})
    with pytest.raises(ParamError, match="num_agents"):
        instantiate(entry(NamedWithSuper), {"num_agents": "many"})


def test_a_wrong_schema_names_the_experiment_and_its_place():
    class Wrong(Base):
        param_schema: ClassVar = {"n": {"type": "integr"}}

    with pytest.raises(UsageError, match=r"test_describe\.py:1: experiment 'mine': .*'integr'"):
        parameters(entry(Wrong))


def test_an_experiment_that_declares_nothing_accepts_anything():
    assert parameters(entry(Base)) == ({}, True)
    assert instantiate(entry(Base), {"n": 1}).params == {"n": 1}


def test_info_has_a_digest_and_a_readable_source(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    about = info(Registered(slug="mine", cls=NewStyle, summary="s", tags=("t",), file=__file__, line=1))
    assert (about.slug, about.summary, about.tags, about.source) == ("mine", "s", ("t",), "test_describe.py")
    assert len(about.digest) == 64
    assert [*about.params] == ["n", "rate"]


def test_only_the_last_experiments_folder_stays_importable(tmp_path):
    before = list(sys.path)
    for name in ("one", "two"):
        file = tmp_path / name / "e.py"
        instantiate(Registered(slug="e", cls=Base, file=str(file), line=1), {})
    added = [each for each in sys.path if each not in before]
    assert len(added) <= 1
    sys.path[:] = before

"""Modules of agents under names of their own."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from proctor.agents.own_modules import PREFIX, load
from proctor.agents.registry import make_agent
from proctor.errors import UsageError
from proctor.model.spec import AgentCode


def code_in(folder: Path, **files: str) -> AgentCode:
    for name, text in files.items():
        place = folder / f"{name.replace('__', '/')}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return AgentCode(content=str(folder), folder=str(folder))


def test_neighbours_are_found_by_every_kind_of_import(tmp_path: Path):
    code = code_in(
        tmp_path,
        main=(
            "import importlib, near, inner.deep as deep\n"
            "from importlib import import_module\n"
            "from near import WORD\n"
            "from inner import deep as again\n"
            "from inner.deep import UP\n"
            "FOUND = [near.WORD, WORD, deep.UP, again.UP, UP]\n"
            "BY_NAME = [importlib.import_module('near'), import_module('inner.deep'), __import__('near')]\n"
        ),
        near="WORD = 1\n",
        inner__deep="from ..near import WORD as UP\n",
    )
    module = load(code, "main")
    assert module.FOUND == [1] * 5
    assert {each.__name__.partition(".")[0] for each in module.BY_NAME} == {module.__name__.partition(".")[0]}
    assert not {"near", "inner", "main"} & set(sys.modules)


def test_the_standard_library_and_installed_packages_are_everybody_s(tmp_path: Path):
    code = code_in(tmp_path, main="import json, msgspec, os.path\n", json="X = 1\n")
    module = load(code, "main")
    assert module.json is sys.modules["json"]
    assert module.msgspec is sys.modules["msgspec"]


def test_instances_can_be_pickled_within_the_process(tmp_path: Path):
    module = load(code_in(tmp_path, main="class Thing:\n    pass\n"), "main")
    assert isinstance(pickle.loads(pickle.dumps(module.Thing())), module.Thing)


def test_the_same_code_is_imported_once_and_other_code_beside_it(tmp_path: Path):
    one, other = (code_in(tmp_path / word, main=f"WORD = {word!r}\n") for word in ("one", "other"))
    assert load(one, "main") is load(one, "main")
    assert [load(each, "main").WORD for each in (one, other)] == ["one", "other"]
    assert all(load(each, "main").__name__.startswith(PREFIX) for each in (one, other))


def test_a_module_that_cannot_be_imported_is_a_usage_error(tmp_path: Path):
    code = code_in(tmp_path, main="import nowhere_at_all\n")
    with pytest.raises(UsageError, match="nowhere_at_all"):
        make_agent("main:Agent", {}, code)

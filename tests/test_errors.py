from __future__ import annotations

import inspect

from proctor import errors
from proctor.errors import EXIT_MEANING, Exit, MissingExtraError, SpecError


def tree() -> list[type[errors.ProctorError]]:
    return [
        each
        for _, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, errors.ProctorError)
    ]


def test_the_tree_drawn_at_the_top_names_every_error():
    drawn = errors.__doc__ or ""
    assert [each.__name__ for each in tree() if each.__name__ not in drawn] == []


def test_every_error_has_an_exit_code_and_an_http_status():
    for each in tree():
        assert each.exit_code in Exit
        assert 400 <= each.http_status < 600


def test_every_exit_code_has_a_meaning():
    assert set(EXIT_MEANING) == set(Exit)
    assert [int(code) for code in Exit] == [0, 1, 2, 3, 4, 5, 130]


def test_a_spec_error_names_its_place():
    assert str(SpecError("wrong", file="a.yaml", line=3, column=7)) == "a.yaml:3:7: wrong"
    assert str(SpecError("wrong", file="a.yaml")) == "a.yaml: wrong"
    assert str(SpecError("wrong")) == "wrong"


def test_a_missing_extra_says_how_to_install_it():
    assert "pip install 'proctor-bench[profilers]'" in str(MissingExtraError("memray", "profilers", "it"))

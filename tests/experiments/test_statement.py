"""A statement is compiled as timeit would, and runs as often as asked."""

from __future__ import annotations

import pytest

from proctor.experiments.base import ExperimentContext
from proctor.experiments.describe import instantiate
from proctor.experiments.discover import find
from proctor.experiments.statement import check, compiled


def test_setup_runs_once_and_the_statement_as_often_as_asked():
    experiment = instantiate(
        find("statement"),
        {"statement": "x += 1\nseen.append(x)", "setup": "import proctor.experiments.statement as home\n"
         "x = 0\nseen = []\nhome.seen = seen", "number": 3},
    )  # fmt: skip
    from proctor.experiments import statement

    context = ExperimentContext()
    experiment.setup(context)
    assert experiment.execute_once(context) == {}
    experiment.execute_once(context)
    assert statement.seen == [1, 2, 3, 4, 5, 6]
    del statement.seen


def test_what_it_raises_is_heard():
    loop = compiled("1 / zero", "zero = 0")(1)
    next(loop)
    with pytest.raises(ZeroDivisionError):
        next(loop)


@pytest.mark.parametrize("text", ["return 1", "break", "yield", "x ="])
def test_what_cannot_stand_alone_is_a_syntax_error(text):
    with pytest.raises(SyntaxError):
        check(text)
    with pytest.raises(SyntaxError):
        check("pass", text)

from __future__ import annotations

import re
from pathlib import Path

import pytest

import proctor

PUBLIC = [
    "Comparison",
    "Experiment",
    "ExperimentContext",
    "Instrument",
    "ProctorError",
    "REGISTRY",
    "Run",
    "Settings",
    "Spec",
    "TrialEvent",
    "compare",
    "configure_for_performance_with_persistence",
    "get_recommended_config",
    "load",
    "register_experiment",
    "register_instrument",
    "register_reporter",
    "run",
]


def test_these_names_and_no_others_are_public():
    assert sorted(proctor.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_had(name):
    assert getattr(proctor, name) is not None


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = proctor.nonsense


def test_dir_and_type_checkers_see_every_public_name():
    assert set(PUBLIC) <= set(dir(proctor))
    source = Path(proctor.__file__).read_text()
    typed = source.partition("if TYPE_CHECKING:")[2].partition("_HOMES")[0]
    assert sorted(re.findall(r"\b(\w+) as \1\b", typed)) == sorted(PUBLIC)

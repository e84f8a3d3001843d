from __future__ import annotations

import pytest

import proctor

PUBLIC = [
    "Experiment",
    "ExperimentContext",
    "Instrument",
    "REGISTRY",
    "load",
    "register_experiment",
    "register_instrument",
]


def test_these_names_and_no_others_are_public():
    assert sorted(proctor.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_had(name):
    assert getattr(proctor, name) is not None


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = proctor.nonsense

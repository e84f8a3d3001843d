"""The pages about experiments agree with the experiments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proctor.experiments.base import REGISTRY, ExperimentContext
from proctor.experiments.describe import parameters
from proctor.experiments.discover import discover

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs/reference/experiments.md").read_text()
HOW_TO = (ROOT / "docs/how-to/write-an-experiment.md").read_text()
SLUGS = ("memory_db", "pragma_profile", "spatial_comprehensive")


def section(slug: str) -> str:
    return REFERENCE.split(f"\n## {slug}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("slug", SLUGS)
def test_every_parameter_choice_and_spec_of_a_built_in_is_documented(slug):
    text = section(slug)
    for param in parameters(discover().experiments[slug])[0].values():
        assert f"`{param.name}`" in text, param.name
        for choice in param.choices:
            assert f"`{choice}`" in text, choice
    for spec in (ROOT / "specs").glob(f"{slug}_*.yaml"):
        assert f"`{spec.stem}`" in REFERENCE


@pytest.mark.parametrize("slug", SLUGS)
def test_every_metric_of_a_built_in_is_documented(slug, tmp_path):
    small = {"num_agents": 5, "num_steps": 3} if slug == "memory_db" else {}
    experiment = discover().experiments[slug].cls(small)
    context = ExperimentContext(run_dir=tmp_path, seed=1)
    experiment.setup(context)
    metrics = experiment.execute_once(context)
    experiment.teardown(context)
    text = section(slug)
    for name in metrics:
        known = f"`{name}`" in text or f"`{name.partition('_')[0]}_…`" in text
        assert known, name


def test_the_python_of_the_how_to_runs():
    blocks = re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)
    whole, schemas, constructor = blocks
    names: dict[str, object] = {}
    before = REGISTRY.pop("sorting", None)
    try:
        exec(whole, names)
        exec(schemas, names)
        exec(f"from typing import Literal\nclass Older(Experiment):\n{_indented(constructor)}", names)
    finally:
        REGISTRY.pop("sorting", None)
        if before:
            REGISTRY["sorting"] = before
    experiment = names["Sorting"](size=10)
    experiment.setup(ExperimentContext(seed=1))
    assert experiment.execute_once(ExperimentContext())["smallest"] >= 0


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())

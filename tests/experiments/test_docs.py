"""The pages about experiments agree with the experiments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.experiments.small import SMALL

from proctor.experiments.base import REGISTRY, ExperimentContext
from proctor.experiments.database.database_profiler import OPERATIONS
from proctor.experiments.database.profiles import PROFILES
from proctor.experiments.describe import parameters
from proctor.experiments.discover import discover
from proctor.experiments.perception.observation_profiler import STAGES
from proctor.experiments.spatial.indexes import INDEXES
from proctor.experiments.spatial.spatial_memory_profiler import STRUCTURES

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs/reference/experiments.md").read_text()
HOW_TO = (ROOT / "docs/how-to/write-an-experiment.md").read_text()
SLUGS = tuple(sorted(SMALL))
PLACEHOLDERS = {
    "INDEX": tuple(INDEXES),
    "STRUCTURE": STRUCTURES,
    "STAGE": (*STAGES, "act", "observe", "log"),
    "OP": (*OPERATIONS, "write", "read", "search", "build", "range", "nearest", "intersection"),
    "PROFILE": tuple(PROFILES),
    "WORKLOAD": ("write_heavy", "read_heavy", "mixed"),
}
"""What the page writes in place of the names of parts."""


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


@pytest.mark.parametrize(
    "slug",
    [pytest.param(each, marks=[pytest.mark.needs("redis")] if "redis" in each else []) for each in SLUGS],
)
def test_every_metric_of_a_built_in_is_documented(slug, tmp_path):
    experiment = discover().experiments[slug].cls(SMALL[slug])
    context = ExperimentContext(run_dir=tmp_path, seed=1)
    experiment.setup(context)
    metrics = experiment.execute_once(context)
    experiment.teardown(context)
    text = section(slug)
    for name in metrics:
        known = {f"`{each}`" for each in spellings(name)} | {f"`{name.partition('_')[0]}_…`"}
        assert any(each in text for each in known), name


def spellings(name: str) -> set[str]:
    """A metric as the page may write it: parts by their placeholder, the ends of an interval left out."""
    found = {name, name.removesuffix("_low").removesuffix("_high")}
    for placeholder, parts in PLACEHOLDERS.items():
        found |= {
            re.sub(rf"(?<![a-z]){part}(?![a-z])", placeholder, each) for part in parts for each in found
        }
    return found


@pytest.mark.parametrize("slug", SLUGS)
def test_every_built_in_says_what_it_does_not_measure_and_shows_a_figure(slug):
    text = section(slug)
    assert "Not measured:" in text
    assert f"(figures/{slug}.svg)" in text
    assert (ROOT / f"docs/reference/figures/{slug}.svg").read_text().startswith("<svg ")


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

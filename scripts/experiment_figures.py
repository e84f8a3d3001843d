"""Draw the figure of each built-in experiment for docs/reference/experiments.md, from a run of its spec.

`python scripts/experiment_figures.py [SLUG …]` runs the specs in a temporary folder and writes
docs/reference/figures/SLUG.svg. A figure shows one machine on one day: shapes, not numbers to quote.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import proctor
from proctor.render import charts, document
from proctor.render.charts.distribution import Sample, rows

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs/reference/figures"
ROOM = 24
"""Free pixels to the left of the labels."""
OWN = ("quadtree", "spatial_hash", "kd_tree")


class Figure(NamedTuple):
    """A row per metric of each point, on one axis."""

    spec: str
    metrics: dict[str, str]
    """Label → metric; `{param}` in a label is the point's value."""
    axis: str


FIGURES = {
    "database_profiler": Figure(
        "database_profiler_baseline",
        {
            f"{name}, in memory: {{in_memory}}": f"{name}_p50_us"
            for name in ("insert", "select", "range", "commit")
        },
        "median_us",
    ),
    "memory_db": Figure("memory_db_baseline", {"{arm}": "duration_s"}, "duration_s"),
    "observation_flow": Figure(
        "observation_sweep", {"{num_agents} agents, radius {radius}, {storage}": "duration_s"}, "duration_s"
    ),
    "observation_profiler": Figure(
        "observation_profiler_baseline",
        {f"{stage}, bilinear: {{use_bilinear}}": f"{stage}_p50_us" for stage in ("near", "project", "dense")},
        "median_us",
    ),
    "perception_metrics": Figure(
        "perception_metrics_baseline",
        {
            "hybrid": "storage_hybrid_observes_per_sec",
            "dense": "storage_dense_observes_per_sec",
            "bilinear": "bilinear_true_observes_per_sec",
            "nearest cell": "bilinear_false_observes_per_sec",
        },
        "observes_per_sec",
    ),
    "pragma_profile": Figure("pragma_profile_baseline", {"{profile}": "duration_s"}, "duration_s"),
    "redis_memory": Figure(
        "redis_memory_baseline",
        {kind: f"{kind}_ops_per_s" for kind in ("write", "read", "search", "batch")},
        "ops_per_s",
    ),
    "spatial_comprehensive": Figure(
        "spatial_comprehensive_baseline", {"{index}": "duration_s"}, "duration_s"
    ),
    "spatial_index_profiler": Figure(
        "spatial_index_profiler_baseline",
        {
            f"{kind}, {name}": f"{name}_{kind}_p50_us"
            for kind in ("range", "nearest", "intersection")
            for name in OWN
        },
        "median_us",
    ),
    "spatial_memory_profiler": Figure(
        "spatial_memory_profiler_baseline",
        {name: f"{name}_bytes_per_point" for name in (*OWN, "list", "dict", "numpy_array")},
        "point_bytes",
    ),
    "spatial_performance_analyzer": Figure(
        "spatial_performance_analyzer_baseline",
        {
            f"{kind}, {name}": f"{name}_{kind}_exponent"
            for kind in ("build", "radius", "nearest")
            for name in OWN
        },
        "exponent",
    ),
    "system_profiler": Figure(
        "system_profiler_baseline", {stage: f"{stage}_s" for stage in ("act", "observe", "log")}, "seconds_s"
    ),
}


def draw(figure: Figure) -> str:
    """Run the spec and draw its metrics."""
    done = proctor.run(ROOT / "specs" / f"{figure.spec}.yaml")
    samples = []
    for trial in done.data.trials:
        assert trial.counted is not None
        for label, metric in figure.metrics.items():
            values = [row[metric] for row in trial.counted.iterations]
            samples.append(Sample(label.format(**trial.planned.params), values, None))
    return alone(rows(samples, figure.axis))


def alone(chart: str) -> str:
    """A chart that needs no page: its own style, in the light colours, on paper."""
    tokens = (Path(document.__file__).parent / "tokens.css").read_text()
    colours = dict(re.findall(r"(--[\w-]+):light-dark\(([^,]+),", tokens))
    style = (Path(charts.__file__).parent / "chart.css").read_text()
    style = re.sub(r"var\((--[\w-]+)(?:,([^()]*))?\)", lambda m: _colour(m, colours), style)
    found = re.search(r'viewBox="0 0 (\S+) (\S+)"', chart)
    assert found is not None
    # Labels end at the chart's left edge; a wide font needs some room beyond it.
    width, height = float(found[1]) + ROOM, found[2]
    size = f'xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height}" '
    paper = f'<rect x="-{ROOM}" width="{width:g}" height="{height}" fill="#ffffff"/>'
    head, _, body = chart.replace(found[0], f'viewBox="-{ROOM} 0 {width:g} {height}"').partition(">")
    return f"{head.replace('<svg ', f'<svg {size}')}><style>{style}</style>{paper}{body}\n"


def _colour(found: re.Match[str], colours: dict[str, Any]) -> str:
    return colours.get(found[1]) or found[2] or "inherit"


def main(slugs: list[str]) -> int:
    """Draw those named, or all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for slug in slugs or FIGURES:
        with tempfile.TemporaryDirectory() as scratch:
            os.chdir(scratch)
            drawn = draw(FIGURES[slug])
            os.chdir(ROOT)
        (FOLDER / f"{slug}.svg").write_text(drawn)
        print(FOLDER / f"{slug}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

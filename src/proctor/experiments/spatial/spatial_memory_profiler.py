"""What spatial indexes take in memory, and whether they grow while agents walk.

Bytes are those that Python allocated, by tracemalloc; what a library allocates in C beyond numpy's arrays is
not in them. tracemalloc slows everything down, so the durations of this experiment compare nothing.
"""

from __future__ import annotations

import gc
import random
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, ClassVar, TypeVar

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.spatial.base import Point
from proctor.experiments.spatial.indexes import SIZES_PARAMS, draw_points, load_index, walk

STRUCTURES = ("list", "dict", "numpy_array")
_MOVED_SHARE = 0.1
_STEP = 1.0
T = TypeVar("T")


@register_experiment(
    "spatial_memory_profiler",
    summary="Bytes per point of spatial indexes, and their growth while agents walk",
    tags=("spatial", "memory", "profile"),
)
class SpatialMemoryProfiler(Experiment):
    """Builds every index at every size and world, and walks its agents."""

    param_schema: ClassVar = {
        **SIZES_PARAMS,
        "world_sizes": {
            "type": "list",
            "each": "float",
            "default": [100.0, 200.0, 500.0],
            "exclusiveMinimum": 0,
            "description": "sides of the square; agents walk one unit of it in a step",
        },
        "data_structures": {
            "type": "list",
            "each": "str",
            "default": [*STRUCTURES],
            "choices": [*STRUCTURES],
            "description": "plain holders of the same points, to compare with",
        },
        "steps": {"type": "int", "default": 100, "minimum": 3, "description": "steps of walking"},
        "track_memory_usage": {
            "type": "bool",
            "default": True,
            "description": "measure bytes after every step, and so the growth",
        },
        "track_garbage_collection": {
            "type": "bool",
            "default": True,
            "description": "count automatic collections, and the objects that one at the end frees",
        },
    }

    def setup(self, context: ExperimentContext) -> None:  # noqa: ARG002 - nothing needed of it
        """Load everything whose import would be counted."""
        import numpy as np  # noqa: F401 - for its side effect of being loaded

        import proctor.analysis.scaling  # noqa: F401 - the same

        self.classes = {name: load_index(name) for name in self.params["algorithms"]}
        for each in self.classes.values():
            each([(0.1, 0.1), (0.2, 0.2)])

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        """Every index at every size and world, then the plain holders."""
        import tracemalloc

        p = self.params
        was_tracing = tracemalloc.is_tracing()
        if not was_tracing:
            tracemalloc.start()
        try:
            rows = [
                {"algorithm": name, "agents": count, "world_size": world}
                | self._walk(name, count, world, context.seed)
                for name, count, world in product(p["algorithms"], p["agent_counts"], p["world_sizes"])
            ]
            holders = [
                {"structure": name, "agents": count, "bytes": _held(name, count, context.seed)}
                for name, count in product(p["data_structures"], p["agent_counts"])
            ]
        finally:
            if not was_tracing:
                tracemalloc.stop()
        return {**_summary(rows, holders), "rows": rows, "holders": holders}

    def _walk(self, name: str, count: int, world: float, seed: int) -> dict[str, Any]:
        pick = random.Random(seed)  # noqa: S311 - repeatable, no secret
        index, built = allocated(self.classes[name], draw_points(pick, count, "uniform"))
        found: dict[str, Any] = {"bytes": built, "bytes_per_point": built / count}
        automatic = _collections()
        series = array("q", bytes(8 * self.params["steps"]))  # of its full size, so that it does not grow
        for number in range(len(series)):
            index.move_many(walk(pick, index.points, _MOVED_SHARE, _STEP / world))
            series[number] = _traced()
        if self.params["track_garbage_collection"]:
            found["gc_collections"] = _collections() - automatic
            found["gc_freed"] = gc.collect()
        if self.params["track_memory_usage"]:
            from proctor.analysis.scaling import slope

            found |= slope(range(len(series)), series).metrics("growth_bytes_per_step")
        return found


def _collections() -> int:
    """How often the collector has run by itself."""
    return sum(int(each["collections"]) for each in gc.get_stats())


def _traced() -> int:
    import tracemalloc

    return tracemalloc.get_traced_memory()[0]


def allocated(make: Callable[[Sequence[Point]], T], points: Sequence[Point]) -> tuple[T, int]:
    """What is made of the points, and the bytes that stayed allocated for it; the points are not in them."""
    before = _traced()
    made = make(points)
    return made, _traced() - before


def _held(structure: str, count: int, seed: int) -> int:
    points = draw_points(random.Random(seed), count, "uniform")  # noqa: S311 - same
    return allocated(partial(hold, structure), points)[1]


def hold(structure: str, points: Sequence[Point]) -> Any:
    """The points in a plain structure, with numbers of its own."""
    if structure == "numpy_array":
        import numpy as np

        return np.array(points, dtype=np.float64)
    fresh = [(x + 0.0, y + 0.0) for x, y in points]
    return fresh if structure == "list" else dict(enumerate(fresh))


def _summary(rows: list[dict[str, Any]], holders: list[dict[str, Any]]) -> dict[str, float]:
    """Each index and holder at the largest size; the exponent over all sizes."""
    from proctor.analysis.scaling import scaling_exponent

    found: dict[str, float] = {}
    largest = max(row["agents"] for row in rows)
    for name in dict.fromkeys(row["algorithm"] for row in rows):
        mine = [row for row in rows if row["algorithm"] == name]
        final = [row for row in mine if row["agents"] == largest]
        for key in ("bytes_per_point", "growth_bytes_per_step"):
            if key in final[0]:
                found[f"{name}_{key}"] = sum(row[key] for row in final) / len(final)
        if len({row["agents"] for row in mine}) > 1:
            sizes, costs = [row["agents"] for row in mine], [row["bytes"] for row in mine]
            worlds = [row["world_size"] for row in mine]
            found |= scaling_exponent(sizes, costs, worlds).metrics(f"{name}_bytes_exponent")
    for row in holders:
        if row["agents"] == largest:
            found[f"{row['structure']}_bytes_per_point"] = row["bytes"] / largest
    return found

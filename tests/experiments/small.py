"""Parameters with which each built-in experiment runs in an instant."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "database_profiler": {"records": 50, "queries": 5},
    "memory_db": {"num_agents": 5, "num_steps": 4},
    "observation_flow": {"width": 30, "height": 30, "num_agents": 5, "steps": 2},
    "observation_profiler": {"width": 30, "height": 30, "num_agents": 5, "steps": 2},
    "perception_metrics": {"agent_counts": [5, 10], "steps": 1},
    "pragma_profile": {"operations": 10, "records": 10},
    "redis_memory": {"num_agents": 2, "memory_entries": 10, "searches": 5},
    "spatial_comprehensive": {"points": 60, "queries": 25},
    "spatial_index_profiler": {"agent_counts": [20, 40], "steps": 2},
    "spatial_memory_profiler": {"agent_counts": [20, 40], "world_sizes": [100.0], "steps": 3},
    "spatial_performance_analyzer": {"agent_counts": [20, 40, 80], "steps": 2},
    "system_profiler": {"num_agents": 5, "steps": 3, "agent_counts": [5, 10]},
}

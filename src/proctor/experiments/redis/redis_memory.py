"""Agent memory in a real Redis: what writing, reading, searching by place, batches and cleaning up cost.

An entry is a JSON text under a key of its own that expires after `ttl` seconds, and its number stands in two
sorted sets of the agent: by step, for cleaning up, and by x, for searching. Every command waits for its
reply, as an agent would; a batch sends many at once.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, ClassVar

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.clocks import per_second, percentiles_us, timed_ns
from proctor.experiments.simulation.memory import Memory, near, remembered

if TYPE_CHECKING:
    from proctor.experiments.redis.protocol import Connection
    from proctor.experiments.redis.server import Server

Command = tuple[str | float, ...]


@register_experiment(
    "redis_memory",
    summary="Agent memory in a real Redis: write, read, search, batch and cleanup",
    tags=("redis", "memory", "simulation"),
)
class RedisMemory(Experiment):
    """Fills, asks and cleans the memories of all agents, from an empty database in every call."""

    param_schema: ClassVar = {
        "num_agents": {"type": "int", "default": 10, "minimum": 1, "description": "agents that remember"},
        "memory_entries": {
            "type": "int",
            "default": 1000,
            "minimum": 1,
            "description": "entries of each agent",
        },
        "batch_size": {"type": "int", "default": 100, "minimum": 1, "description": "entries sent at once"},
        "search_radius": {
            "type": "float",
            "default": 10.0,
            "minimum": 0,
            "description": "how far a search goes",
        },
        "memory_limit": {
            "type": "int",
            "default": 5000,
            "minimum": 1,
            "description": "entries of an agent that a cleanup leaves",
        },
        "ttl": {
            "type": "int",
            "default": 3600,
            "minimum": 1,
            "description": "seconds until an entry expires",
        },
        "cleanup_interval": {
            "type": "int",
            "default": 100,
            "minimum": 1,
            "description": "writes of an agent between two cleanups",
        },
        "searches": {"type": "int", "default": 100, "minimum": 1, "description": "searches per call"},
        "address": {
            "type": "str",
            "default": "",
            "description": "host:port of a running server; empty: start one",
        },
    }

    server: Server | None = None
    redis: Connection | None = None

    def setup(self, context: ExperimentContext) -> None:
        """Start or reach the server, and simulate what is remembered."""
        from proctor.experiments.redis.server import Server, connect

        p = self.params
        if p["address"]:
            self.redis = connect(p["address"])
        else:
            self.server = Server()
            self.redis = self.server.start()
        self.prefix = f"proctor:{context.run_id or 'x'}:{random.SystemRandom().randrange(1 << 48):x}"
        self.memories = remembered(p["num_agents"], p["memory_entries"], context.seed)
        pick = random.Random(context.seed)  # noqa: S311 - repeatable, no secret
        self.asked = [
            pick.choice(self.memories[pick.randrange(p["num_agents"])]) for _ in range(p["searches"])
        ]

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:  # noqa: ARG002 - nothing needed of it
        """Write one by one with cleanups, read, search; then everything again in batches."""
        assert self.redis is not None
        self._forget()
        found, cleanups = self._write_all()
        entries = sum(self._count(agent) for agent in self.memories)
        used = sum(map(self._bytes, self.memories))
        found |= self._read_all() | self._search_all()
        self._forget()
        found |= self._batch_all()
        return found | {
            "entries": entries,
            "bytes_per_entry": used / entries,
            "cleanup_time": sum(cleanups) / 1e9,
            "cleanups": len(cleanups),
        }

    def teardown(self, context: ExperimentContext) -> None:  # noqa: ARG002 - nothing needed of it
        """Remove our keys from a server that goes on; stop our own."""
        try:
            if self.redis is not None and self.server is None:
                self._forget()
        finally:
            if self.redis is not None:
                self.redis.close()
            if self.server is not None:
                self.server.stop()

    def _write_all(self) -> tuple[dict[str, Any], list[int]]:
        times: list[int] = []
        cleanups: list[int] = []
        for agent, memories in self.memories.items():
            for number, memory in enumerate(memories, 1):
                timed_ns(times, self._batch, [memory])
                if number % self.params["cleanup_interval"] == 0:
                    timed_ns(cleanups, self._clean, agent)
            timed_ns(cleanups, self._clean, agent)
            left = min(len(memories), self.params["memory_limit"])
            if self._count(agent) != left:
                raise AssertionError(f"agent {agent} remembers {self._count(agent)} entries, not {left}")
        return _rates("write", times), cleanups

    def _read_all(self) -> dict[str, Any]:
        times: list[int] = []
        for memories in self.memories.values():
            for memory in memories[-self.params["memory_limit"] :]:
                text = timed_ns(times, self._read, memory)
                if text is None or Memory(*json.loads(text)) != memory:
                    raise AssertionError(f"entry {memory.step} of agent {memory.agent_id} was not read back")
        return _rates("read", times)

    def _search_all(self) -> dict[str, Any]:
        times: list[int] = []
        hits = 0
        for memory in self.asked:
            found = timed_ns(times, self._search, memory)
            kept = self.memories[memory.agent_id][-self.params["memory_limit"] :]
            if found != near(kept, memory.x, memory.y, self.params["search_radius"]):
                raise AssertionError(f"a search around {memory.x}, {memory.y} found other entries")
            hits += len(found)
        return {**_rates("search", times), "found_per_search": hits / len(self.asked)}

    def _batch_all(self) -> dict[str, Any]:
        times: list[int] = []
        size = self.params["batch_size"]
        every = [memory for memories in self.memories.values() for memory in memories]
        for first in range(0, len(every), size):
            timed_ns(times, self._batch, every[first : first + size])
        return {
            "batch_ops_per_s": per_second(len(every), sum(times) / 1e9),
            **percentiles_us("batch", times, (50, 95, 99)),
        }

    def _batch(self, memories: list[Memory]) -> None:
        assert self.redis is not None
        self.redis.pipeline([command for memory in memories for command in self._write(memory)])

    def _read(self, memory: Memory) -> bytes | None:
        assert self.redis is not None
        found: bytes | None = self.redis("GET", self._key(memory))
        return found

    def _write(self, memory: Memory) -> list[Command]:
        by = f"{self.prefix}:{memory.agent_id}"
        return [
            ("SET", self._key(memory), json.dumps(memory), "EX", self.params["ttl"]),
            ("ZADD", f"{by}:step", memory.step, memory.step),
            ("ZADD", f"{by}:x", memory.x, memory.step),
        ]

    def _search(self, memory: Memory) -> list[Memory]:
        """Entries by x from the server; the rest of the distance is looked at here."""
        assert self.redis is not None
        reach = self.params["search_radius"]
        by = f"{self.prefix}:{memory.agent_id}"
        steps = self.redis("ZRANGEBYSCORE", f"{by}:x", memory.x - reach, memory.x + reach)
        if not steps:
            return []
        texts = self.redis("MGET", *(f"{by}:m:{int(step)}" for step in steps))
        found = [Memory(*json.loads(text)) for text in texts if text is not None]
        return sorted(near(found, memory.x, memory.y, reach), key=lambda each: each.step)

    def _clean(self, agent: int) -> None:
        """Forget the oldest entries beyond the limit."""
        assert self.redis is not None
        by = f"{self.prefix}:{agent}"
        old = self.redis("ZRANGE", f"{by}:step", 0, -self.params["memory_limit"] - 1)
        if old:
            self.redis.pipeline(
                [
                    ("DEL", *(f"{by}:m:{int(step)}" for step in old)),
                    ("ZREM", f"{by}:step", *old),
                    ("ZREM", f"{by}:x", *old),
                ]
            )

    def _key(self, memory: Memory) -> str:
        return f"{self.prefix}:{memory.agent_id}:m:{memory.step}"

    def _count(self, agent: int) -> int:
        assert self.redis is not None
        return int(self.redis("ZCARD", f"{self.prefix}:{agent}:step"))

    def _bytes(self, agent: int) -> int:
        """What the server says the keys of an agent take, all of their parts counted."""
        assert self.redis is not None
        by = f"{self.prefix}:{agent}"
        kept = self.memories[agent][-self.params["memory_limit"] :]
        keys = [f"{by}:step", f"{by}:x", *map(self._key, kept)]
        return sum(self.redis.pipeline([("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys]))

    def _forget(self) -> None:
        """Delete what is under our prefix, and nothing else."""
        assert self.redis is not None
        cursor: Any = b"0"
        while True:
            cursor, keys = self.redis("SCAN", cursor, "MATCH", f"{self.prefix}:*", "COUNT", 1000)
            if keys:
                self.redis("DEL", *keys)
            if cursor == b"0":
                return


def _rates(kind: str, times: list[int]) -> dict[str, float]:
    return {
        f"{kind}_ops_per_s": per_second(len(times), sum(times) / 1e9),
        **percentiles_us(kind, times, (50, 95, 99)),
    }

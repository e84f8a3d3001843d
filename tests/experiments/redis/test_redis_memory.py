"""Memories in a real Redis come back, and a missing or foreign server is said plainly."""

from __future__ import annotations

import socket

import pytest

from proctor.experiments.base import ExperimentContext
from proctor.experiments.redis.protocol import Connection, RedisError
from proctor.experiments.redis.redis_memory import RedisMemory
from proctor.experiments.redis.server import Server, connect

SMALL = {
    "num_agents": 3,
    "memory_entries": 20,
    "batch_size": 7,
    "memory_limit": 15,
    "cleanup_interval": 4,
    "searches": 10,
}


@pytest.fixture
def server():
    made = Server()
    yield made, made.start()
    made.stop()


@pytest.mark.needs("redis")
def test_memories_are_written_read_searched_and_cleaned_up(tmp_path):
    experiment, context = RedisMemory(SMALL), ExperimentContext(run_dir=tmp_path, seed=4)
    experiment.setup(context)
    process = experiment.server._process
    found = [experiment.execute_once(context) for _ in range(2)][-1]
    experiment.teardown(context)
    assert found["entries"] == 3 * 15
    assert found["cleanups"] == 3 * 6
    assert found["bytes_per_entry"] > 0
    assert found["found_per_search"] >= 1
    for kind in ("write", "read", "search", "batch"):
        assert found[f"{kind}_ops_per_s"] > 0
        assert found[f"{kind}_p50_us"] <= found[f"{kind}_p99_us"]
    assert process.returncode is not None


@pytest.mark.needs("redis")
def test_a_lost_entry_is_noticed(tmp_path, monkeypatch):
    experiment, context = RedisMemory(SMALL), ExperimentContext(run_dir=tmp_path, seed=4)
    experiment.setup(context)
    monkeypatch.setattr(RedisMemory, "_clean", lambda self, agent: None)
    try:
        with pytest.raises(AssertionError, match="agent 0 remembers 20 entries, not 15"):
            experiment.execute_once(context)
    finally:
        experiment.teardown(context)


@pytest.mark.needs("redis")
def test_on_a_server_of_others_only_our_own_keys_are_touched(tmp_path, server):
    made, other = server
    other("CONFIG", "SET", "requirepass", "")
    other("SET", "precious", "1")
    experiment = RedisMemory({**SMALL, "address": f"127.0.0.1:{made.port}"})
    context = ExperimentContext(run_dir=tmp_path, seed=4)
    experiment.setup(context)
    experiment.execute_once(context)
    experiment.teardown(context)
    assert other("KEYS", "*") == [b"precious"]
    other.close()


@pytest.mark.needs("redis")
def test_the_server_wants_its_password_and_refuses_what_is_wrong(server):
    made, ours = server
    stranger = Connection("127.0.0.1", made.port)
    with pytest.raises(RedisError, match="NOAUTH"):
        stranger("GET", "x")
    stranger.close()
    assert ours("GET", "x") is None
    with pytest.raises(RedisError, match="unknown command"):
        ours("NONSENSE")
    ours.close()


def test_without_redis_the_reason_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    experiment = RedisMemory(SMALL)
    with pytest.raises(RuntimeError, match="apt install redis-server"):
        experiment.setup(ExperimentContext(run_dir=tmp_path))
    experiment.teardown(ExperimentContext(run_dir=tmp_path))


def test_a_server_that_does_not_come_up_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="did not start"):
        Server().start()
    assert [each.name for each in tmp_path.iterdir()] == ["redis-server"]


@pytest.mark.parametrize("address", ["nowhere", "host:", ":x", "host:port"])
def test_an_address_is_host_and_port(address):
    with pytest.raises(ValueError, match="is not host:port"):
        connect(address)


def test_a_server_that_hangs_up_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection(*listener.getsockname()[:2])
        listener.accept()[0].close()
        with pytest.raises((RedisError, OSError)):
            connection("PING")
        connection.close()

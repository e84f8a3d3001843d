from __future__ import annotations

from proctor.engine.lease import is_dead, worker_id


def test_a_worker_is_dead_only_when_that_is_certain():
    me = worker_id()
    host, pid, ticks, place, nonce = me.split(":")
    assert not is_dead(me)
    assert is_dead(f"{host}:{pid}:1:{place}:{nonce}"), "another process had this pid"
    assert not is_dead(f"{host}:{pid}:1:00000000:{nonce}"), "pids of other namespaces cannot be seen"
    assert is_dead(f"{host}:{pid}:1:{nonce}"), "as earlier versions wrote it"
    assert not is_dead(f"{host}:{pid}:{ticks}:{nonce}")
    assert not is_dead(f"elsewhere:{pid}:1:{nonce}"), "nothing is known about other hosts"
    assert not is_dead("nonsense")

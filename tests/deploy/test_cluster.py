"""`scripts/cluster.py` starts real servers on free ports, runs a spec on them and leaves nothing behind."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/cluster.py"
SOAK = bool(os.environ.get("PROCTOR_SOAK"))


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("cluster", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["cluster"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["cluster"]


def left(folder: Path) -> list[str]:
    """Processes that have this folder, or a folder of a cluster's servers, in their words or are in it."""
    found = []
    for each in psutil.process_iter(["cmdline", "cwd"]):
        words = " ".join(each.info["cmdline"] or ())
        if each.pid != os.getpid() and (str(folder) in words or str(folder) in (each.info["cwd"] or "")):
            found.append(words)
    return found


@pytest.mark.needs("postgres", "redis", "bubblewrap")
def test_a_spec_runs_on_a_cluster_and_ctrl_c_leaves_nothing(tmp_path):
    words = ["run", "-t", "tasks/config-edit", "-a", "oracle", "-n", "2", "--host-root"]
    with subprocess.Popen(
        [sys.executable, SCRIPT, "--demo", "--workers", "1", "--folder", tmp_path / "c", "--", *words],
        stdout=subprocess.PIPE,
        text=True,
    ) as cluster:
        try:
            said = ""
            for line in cluster.stdout:
                said += line
                if line.startswith("Its page"):
                    break
            cluster.send_signal(signal.SIGINT)
            assert cluster.wait(90) == 0, said
            assert "nothing is left running" in cluster.stdout.read()
        finally:
            cluster.kill()
    assert "2 of 2 scored rollouts" in said
    assert re.search(r"^Its page: http://127\.0\.0\.1:\d+/runs/\d{8}T\d{6}-\w+$", said, re.MULTILINE)
    assert (tmp_path / "c/worker-1.log").is_file()
    assert left(tmp_path) == []
    port = int(re.search(r"127\.0\.0\.1:(\d+)/postgres", said)[1])
    assert not any(
        each.laddr.port == port for each in psutil.net_connections("tcp") if each.status == "LISTEN"
    )


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        pytest.param("redis", "redis://127.0.0.1:", marks=pytest.mark.needs("redis")),
        pytest.param(
            "rabbitmq",
            "amqp://guest:guest@127.0.0.1:",
            marks=[
                pytest.mark.needs("rabbitmq"),
                pytest.mark.fault,
                pytest.mark.skipif(not SOAK, reason="takes half a minute: PROCTOR_SOAK=1"),
            ],
        ),
        ("blobs", "s3://proctor/blobs?endpoint="),
    ],
)
def test_each_server_starts_and_ends(script, tmp_path, name, begins):
    # Not below the folder of this session: another account must get there.
    home = Path(tempfile.mkdtemp(prefix="proctor-cluster-", dir="/tmp"))
    home.chmod(0o711)
    cluster = script.Cluster(tmp_path)
    try:
        found = script.blobs(cluster) if name == "blobs" else getattr(script, name)(cluster, home)
        assert found.startswith(begins)
    finally:
        cluster.end()
        shutil.rmtree(home)
    assert all(each.poll() is not None for each in cluster.parts.values())


def test_a_part_that_does_not_start_is_named_with_the_end_of_its_log(script, tmp_path):
    cluster = script.Cluster(tmp_path)
    cluster.start("broken", ["sh", "-c", "echo no disk; exit 3"])
    with pytest.raises(script.ClusterError, match=r"broken did not start; see .*broken\.log:\n  no disk"):
        cluster.wait("broken", lambda: False)
    cluster.end()


def test_a_part_that_ends_by_itself_is_named(script, tmp_path):
    cluster = script.Cluster(tmp_path)
    part = cluster.start("short", ["true"])
    part.wait(30)
    with pytest.raises(script.ClusterError, match="short has ended"):
        cluster.check()
    cluster.end()


def test_what_does_not_end_is_killed_with_what_it_started(script, tmp_path, monkeypatch):
    cluster = script.Cluster(tmp_path)
    part = cluster.start("stubborn", ["sh", "-c", "sleep 600 & echo $! > child; exec sleep 600"])
    deadline = time.monotonic() + 30
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child = int((tmp_path / "child").read_text())
    cluster.end()
    assert part.poll() is not None
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_second_cluster_leaves_the_folder_of_the_first_alone(script, tmp_path):
    wanted = tmp_path / "demo/cluster"
    with script.own_folder(wanted) as first:
        (first / "worker.log").write_text("mine")
        with script.own_folder(wanted) as second:
            assert (first, second) == (wanted, tmp_path / "demo/cluster-2")
        assert (first / "worker.log").read_text() == "mine"
    with script.own_folder(wanted) as again:
        assert (again, list(again.iterdir())) == (wanted, [])


@pytest.mark.needs("redis")
def test_a_port_that_somebody_took_is_named_with_the_server_that_wanted_it(script, tmp_path, monkeypatch):
    cluster = script.Cluster(tmp_path)

    def start() -> None:
        script.redis(cluster, tmp_path)
        cluster.parts["redis"].wait(30)
        cluster.check()

    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr(script, "free_port", lambda: other.getsockname()[1])
        with pytest.raises(script.ClusterError, match=r"^redis .*; see (?s:.*)ddress already in use"):
            start()
    cluster.end()


def test_who_ends_it_before_it_is_up_does_not_wait_for_the_rest(script, tmp_path):
    cluster = script.Cluster(tmp_path)
    cluster.start("slow", ["sleep", "600"])
    cluster.over.set()
    with pytest.raises(script.StoppedError):
        cluster.wait("slow", lambda: False)
    cluster.end()

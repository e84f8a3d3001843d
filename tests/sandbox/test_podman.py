"""Real podman containers as sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from proctor import owner
from proctor.errors import SandboxError
from proctor.sandbox import reaper
from proctor.sandbox.base import Limits, Root, SandboxRequest, end_processes, listen
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.container import adjust, leftovers
from proctor.sandbox.container import engine as engines
from proctor.sandbox.container.engine import call
from proctor.sandbox.network_rules import NetworkRules, own_addresses
from proctor.sandbox.probe import ADDRESS, an_outside

pytestmark = [pytest.mark.anyio, pytest.mark.needs("podman")]
MB = 1 << 20


@pytest.fixture
async def start(podman, podman_image):
    """A started sandbox, with limits by keyword."""

    async def started(env=None, root=None, **limits):
        request = SandboxRequest(
            name="t",
            root=root or Root(image=podman_image, workdir="/place", env={"FROM_IMAGE": "i", "BOTH": "image"}),
            limits=Limits(**limits),
            env=env or {},
            labels={"run": "r1", "trial": "k1"},
        )
        sandbox = podman.sandbox(request)
        await sandbox.start()
        return sandbox

    return started


async def sh(sandbox, script, **options):
    options.setdefault("timeout_s", 60)
    return await sandbox.exec(["sh", "-c", script], **options)


def of_backend(backend):
    return f"label={leftovers.LOCK}={reaper.lock_of(backend.folder)}"


async def containers(backend, *more):
    command = ["podman", "ps", "--all", "--filter", of_backend(backend), *more]
    return (await call([*command, "--format", "{{.Names}}"])).out.split()


async def test_commands_run_with_their_environment_folder_user_and_input(start):
    sandbox = await start(env={"BOTH": "request"})
    result = await sh(
        sandbox, "pwd; id -u; echo $FROM_IMAGE $BOTH $MORE; cat; exit 3", stdin=b"in", env={"MORE": "m"}
    )
    assert result.stdout == b"/place\n0\ni request m\nin"
    assert result.exit_code == 3
    assert result.wall_s > 0
    assert result.peak_memory_bytes
    other = await sh(
        sandbox, "id -u; id -g; echo $HOME; touch /etc/x || echo refused", user="tester", cwd="/tmp"
    )
    assert other.stdout == b"1000\n1000\n/home\nrefused\n"
    assert (await sandbox.exec(["no-such-program"])).exit_code == 127
    seen = []
    kept = await sh(
        sandbox,
        "echo a; echo b >&2; yes | head -c 100000",
        on_output=lambda *each: seen.append(each),
        keep_bytes=10,
    )
    assert len(kept.stdout) == 10
    assert sum(len(data) for name, data in seen if name == "stdout") == 100_002
    assert b"".join(data for name, data in seen if name == "stderr") == b"b\n"


async def test_at_its_time_limit_the_whole_tree_of_a_command_ends_and_earlier_daemons_stay(start):
    sandbox = await start()
    await sh(sandbox, "setsid sleep 1111 > /dev/null 2>&1 &")
    result = await sh(sandbox, "setsid sleep 2222 & sleep 3333", timeout_s=0.5)
    assert result.timed_out
    assert result.exit_code == 137
    left = (await sh(sandbox, "cat /proc/*/cmdline | tr '\\0' ' '")).stdout
    assert b"sleep 1111" in left
    assert b"sleep 2222" not in left
    assert b"sleep 3333" not in left
    await sh(sandbox, "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; ln -s /tmp /tests")
    await end_processes(sandbox, fresh=["/tests", "/logs/verifier"])
    assert b"sleep 1111" not in (await sh(sandbox, "cat /proc/*/cmdline | tr '\\0' ' '")).stdout
    kinds = "ls -A /tests /logs/verifier; stat -c '%F %a' /tests /logs/verifier"
    assert (await sh(sandbox, kinds)).stdout.endswith(b"directory 755\ndirectory 777\n")
    assert (await sh(sandbox, "ls /logs/verifier")).stdout == b""


async def test_the_disk_is_watched_also_after_another_container_has_gone(podman, start):
    staying, going = await start(storage_bytes=64 * MB), await start(storage_bytes=64 * MB)
    await going.stop()
    assert podman.watch.folder.is_dir()
    await podman.watch.look()
    await staying.stop()


async def test_files_go_in_and_come_out(start, tmp_path):
    sandbox = await start()
    source = tmp_path / "up"
    (source / "sub").mkdir(parents=True)
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    (source / "sub/large").write_bytes(os.urandom(2 * MB))
    (source / "link").symlink_to("run.sh")
    await sandbox.upload(source, "/tests")
    assert (await sh(sandbox, "/tests/link; stat -c '%u %a' /tests/run.sh")).stdout == b"ran\n0 755\n"
    await sandbox.upload(source / "run.sh", "/opt/")
    assert (await sh(sandbox, "/opt/run.sh")).stdout == b"ran\n"
    found = await sandbox.download("/tests", tmp_path / "down")
    assert (found.files, found.dropped) == (2, ("link",))
    assert (tmp_path / "down/sub/large").read_bytes() == (source / "sub/large").read_bytes()
    with pytest.raises(FileNotFoundError):
        await sandbox.download("/nothing", tmp_path / "no")
    with pytest.raises(SandboxError, match="absolute"):
        await sandbox.upload(source, "relative")


async def test_one_container_with_labels_and_nothing_after_stop(start, podman):
    sandbox = await start()
    filters = ("--filter", "label=proctor.run=r1", "--filter", "label=proctor.trial=k1")
    names = await containers(podman, *filters)
    assert len(names) == 1
    said = await call(
        ["podman", "inspect", "--format", "{{.Path}} {{.State.Running}} {{.HostConfig.AutoRemove}}", *names]
    )
    assert said.out.split() == ["/run/.proctor/init", "true", "true"]
    with pytest.raises(SandboxError, match="started before"):
        await sandbox.start()
    await sandbox.stop()
    await sandbox.stop()
    assert not await containers(podman)
    assert [each.name for each in podman.folder.iterdir()] == ["owner.json"]
    with pytest.raises(SandboxError, match="not running"):
        await sandbox.exec(["true"])


async def test_limits_are_read_back_from_the_kernel_and_the_ledger_counts(start):
    sandbox = await start(cpus=0.5, memory_bytes=300 * MB, storage_bytes=200 * MB, pids=50)
    await sh(
        sandbox, "head -c 5000000 /dev/zero > /place/file; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
    )
    info = sandbox.info()
    assert info.backend == "podman"
    assert info.enforced["network"] == "podman: none"
    for name in ("cpus", "memory", "pids"):
        assert info.enforced[name].startswith(("cgroup v", "rlimit", "not enforced")), name
    assert info.ledger["cpu_s"] > 0
    assert info.ledger["peak_memory_bytes"] > 0
    if info.enforced["cpus"].startswith("cgroup"):
        assert info.ledger["throttled_s"] >= 0
        assert info.ledger["oom_kills"] == 0
    await sandbox.stop()
    if info.enforced["storage"].startswith("watched"):
        assert sandbox.info().ledger["disk_bytes"] >= 5_000_000


async def test_a_start_that_fails_leaves_nothing(podman):
    for root, words in (
        (Root(image="localhost/no-such-image:1"), "could not start a container"),
        (Root(), "needs an image"),
        (Root(image="x", binds={"/a": Path("/with,comma")}), "comma"),
    ):
        with pytest.raises(SandboxError, match=words):
            await podman.sandbox(SandboxRequest(name="t", root=root)).start()
    assert [each.name for each in podman.folder.iterdir()] == ["owner.json"]
    assert not await containers(podman)


async def test_a_start_that_is_cancelled_leaves_nothing(podman, podman_image):
    await podman.adjustment()
    for turns in (1, 3, 10, 25, 50, 75, 100):
        sandbox = podman.sandbox(SandboxRequest(name="t", root=Root(image=podman_image)))
        starting = asyncio.create_task(sandbox.start())
        for _ in range(turns):
            await asyncio.sleep(0.001)
        if not starting.cancel():  # it was quicker
            await sandbox.stop()
            continue
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert not await containers(podman)
    assert [each.name for each in podman.folder.iterdir()] == ["owner.json"]
    deadline = time.monotonic() + 10
    while monitors_of(owner.owner_name()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def monitors_of(owner: str) -> list[str]:
    """Processes that watch over containers of an owner, whether or not the engine knows of them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_bytes().split(b"\0")
            if words[0].endswith(b"conmon") and any(owner.encode() in word for word in words):
                found.append(file.parent.name)
    return found


async def test_closing_the_back_end_stops_what_runs(start, podman):
    sandboxes = await asyncio.gather(start(), start())
    running = [asyncio.create_task(each.exec(["sleep", "1000"])) for each in sandboxes]
    await asyncio.sleep(0)
    await podman.close()
    ended = await asyncio.gather(*running, return_exceptions=True)
    assert all(isinstance(each, SandboxError) for each in ended)
    assert not await containers(podman)
    assert not podman.folder.exists()


async def test_a_container_that_dies_ends_its_commands_with_a_typed_error(start, podman):
    sandbox = await start()
    waiting = asyncio.create_task(sandbox.exec(["sleep", "1000"]))
    await sandbox.exec(["true"])
    await call(["podman", "rm", "--force", "--time", "0", *await containers(podman)])
    with pytest.raises(SandboxError, match="ended while it was in use"):
        await waiting
    await sandbox.stop()


@pytest.fixture
def server():
    """A web server on this machine's loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made.server_port
        made.shutdown()
        thread.join()


FETCH = """
import socket, sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=5).read().decode())
    except Exception as error:
        print(getattr(error, 'code', 'unreachable'))
print([name for _, name in socket.if_nameindex()])
"""


async def test_without_network_there_is_a_loopback_and_nothing_else(start, server):
    sandbox = await start()
    result = await sandbox.exec(["python3", "-c", FETCH, f"http://127.0.0.1:{server}/"])
    assert result.stdout == b"unreachable\n['lo']\n"


async def test_an_allow_list_lets_its_hosts_through_but_not_to_this_machine(start, server):
    sandbox = await start(network="allowlist", allowed_hosts=("127.0.0.1",))
    urls = [f"http://127.0.0.1:{server}/", "http://example.org/"]
    result = await sandbox.exec(["python3", "-c", FETCH, *urls], env={"no_proxy": "", "NO_PROXY": ""})
    assert result.stdout == b"502\n403\n['lo']\n"


@pytest.fixture
async def outside(podman, tmp_path, anyio_backend):
    """Public networks lead to a namespace of our own, where every address answers; see `sandbox.outside`."""
    backend = Bubblewrap(tmp_path / "outside")
    async with an_outside(backend) as place:
        podman.network_rules = NetworkRules(allow=("10.9.9.9",), outside=f"/proc/{place.init_pid}/ns/net")
        yield
        await podman.close()
    await backend.close()


@pytest.mark.needs("slirp4netns", "bubblewrap")
async def test_a_public_network_reaches_the_internet_and_what_was_opened_alone(start, outside):
    sandbox = await start(network="public")
    refused = ("127.0.0.1", "10.0.2.2", "169.254.169.254", "10.1.2.3", "192.168.1.1")
    urls = [f"http://{host}/" for host in (ADDRESS, "10.9.9.9", *refused)]
    result = await sandbox.exec(["python3", "-c", FETCH, *urls])
    lines = [line for line in result.stdout.decode().splitlines() if line]
    assert lines == ["proctor", "proctor", *["unreachable"] * len(refused), "['lo', 'tap0']"]
    assert (await sandbox.exec(["cat", "/etc/resolv.conf"])).stdout == b"nameserver 10.0.2.3\n"


@pytest.fixture
def shared_mount(tmp_path):
    """A mount below a shared one, as podman and `ip netns` keep networks below /run/netns."""
    above, below = tmp_path / "shared", tmp_path / "shared/kept"
    above.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "shared", above], check=True)
    try:
        subprocess.run(["mount", "--make-shared", above], check=True)
        below.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "kept", below], check=True)
        yield below
    finally:
        subprocess.run(["umount", "--recursive", above], check=True)


@pytest.mark.needs("slirp4netns", "bubblewrap", "root")
async def test_a_public_network_takes_no_mount_from_this_machine(shared_mount, start, outside):
    assert shared_mount.is_mount()
    sandbox = await start(network="public")
    assert shared_mount.is_mount()
    await sandbox.stop()
    assert shared_mount.is_mount()


@pytest.mark.needs("slirp4netns", "bubblewrap")
async def test_the_network_of_a_running_container_changes_and_changes_back(start, outside):
    sandbox = await start()
    for network, found in (("none", "unreachable"), ("public", "proctor"), ("none", "unreachable")):
        await sandbox.set_network(network)
        result = await sandbox.exec(["python3", "-c", FETCH, f"http://{ADDRESS}/"])
        assert result.stdout.decode().split()[0] == found
    await sandbox.set_network("allowlist", ["example.org"])
    result = await sandbox.exec(["python3", "-c", FETCH, f"http://{ADDRESS}/"])
    assert result.stdout.decode().split()[0] == "403"


@pytest.mark.needs("podman-compose")
async def test_public_services_of_a_compose_file_reach_each_other_but_not_this_machine(
    podman, podman_image, tmp_path
):
    """On their bridge this machine has an address too, and what listens on all addresses listens there."""
    file = tmp_path / "task/compose.yaml"
    (file.parent / "data").mkdir(parents=True)
    file.write_text(COMPOSE.format(image=podman_image))
    request = SandboxRequest(
        name="t", root=Root(image=podman_image, compose=file), limits=Limits(network="public")
    )
    sandbox = podman.sandbox(request)
    await sandbox.start()
    async with asyncio.timeout(60):
        while (await sandbox.exec(["python3", "-c", READY])).exit_code:  # noqa: ASYNC110 - it is not ours to tell
            await asyncio.sleep(0.1)
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        port = everywhere.getsockname()[1]
        bridge = [each for each in own_addresses() if each.startswith("10.")]
        urls = [f"http://{each}:{port}/" for each in bridge]
        result = await sandbox.exec(["python3", "-c", FETCH, *urls], timeout_s=60)
    assert bridge
    assert result.stdout.decode().splitlines()[:-1] == ["unreachable"] * len(bridge)
    with pytest.raises(SandboxError, match="cannot be changed between 'public' and another"):
        await sandbox.set_network("none")
    await sandbox.stop()


async def test_what_was_found_out_is_remembered_and_told(podman, monkeypatch):
    found = await podman.adjustment()
    files = list(podman.cache_dir.glob("podman-*.json"))
    assert len(files) == 1

    async def never(_):
        raise AssertionError

    monkeypatch.setattr(adjust, "find", never)
    assert await adjust.remembered(podman) == found
    ways = list(adjust.candidates(podman))
    assert ways[0].options == ways[0].ulimits == ()
    assert ways[-1].limits == ()


async def test_an_engine_that_cannot_run_anything_says_every_reason(podman, tmp_path, monkeypatch):
    script = tmp_path / "bin/podman"
    script.parent.mkdir()
    script.write_text(
        '#!/bin/sh\ncase " $* " in *" run "*) echo "Error: no $RANDOM reason" >&2; exit 125;; esac\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    with pytest.raises(SandboxError, match=r"cannot run a container here: .*no .*reason"):
        await adjust.find(podman)


async def test_an_engine_that_hangs_is_given_up(tmp_path):
    started = time.monotonic()
    with pytest.raises(SandboxError, match=r"`sh -c sleep 1000 …` did not end within 0.2 s"):
        await call(["sh", "-c", "sleep 1000"], timeout_s=0.2)
    assert time.monotonic() - started < 100
    with pytest.raises(SandboxError, match="cannot run /no/such/program"):
        await call(["/no/such/program"])


def test_obstacles_are_named(monkeypatch, tmp_path):
    assert engines.PODMAN.obstacle() == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engines.PODMAN.obstacle() == "podman is not installed"
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    assert engines.PODMAN.obstacle() == ""
    monkeypatch.setattr(engines, "missing_program", lambda: "no keeper")
    assert engines.PODMAN.obstacle() == "no keeper"


READY = "import socket; socket.create_connection(('web', 8000), 2)"
COMPOSE = """
services:
  main: {{image: {image}, command: [sleep, infinity], volumes: [shared:/shared]}}
  web:
    image: {image}
    command: [python3, -m, http.server, "8000"]
    volumes: [shared:/shared, ./data:/data:ro]
volumes: {{shared: }}
"""


@pytest.mark.needs("podman-compose")
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "left behind"])
async def test_the_services_of_a_compose_file_come_and_go_with_the_sandbox(
    podman, podman_image, tmp_path, killed, monkeypatch
):
    file = tmp_path / "task/compose.yaml"
    (file.parent / "data").mkdir(parents=True)
    file.write_text(COMPOSE.format(image=podman_image))
    sandbox = podman.sandbox(SandboxRequest(name="t", root=Root(image=podman_image, compose=file)))
    await sandbox.start()
    async with asyncio.timeout(60):
        while (await sandbox.exec(["python3", "-c", READY])).exit_code:  # noqa: ASYNC110 - it is not ours to tell
            await asyncio.sleep(0.1)
    result = await sandbox.exec(
        ["python3", "-c", FETCH, "http://web:8000/data/", "http://1.1.1.1/"], timeout_s=60
    )
    assert b"Directory listing" in result.stdout
    assert b"unreachable" in result.stdout
    assert len(await containers(podman)) == 2
    if killed:
        monkeypatch.setattr(owner, "lives", lambda *_: False)
        await call(["podman", "rm", "--force", "--time", "0", *await containers(podman)])
        removed = " ".join(await podman.reap())
        assert "network" in removed
        assert "volume" in removed
    with contextlib.suppress(SandboxError) if killed else contextlib.nullcontext():
        await sandbox.stop()
    assert not await containers(podman)
    for kind in ("network", "volume"):
        said = await call(["podman", kind, "ls", "-q", "--filter", of_backend(podman)])
        assert said.out == "", kind


async def test_a_service_beside_the_sandbox_runs_commands_and_gives_its_files(podman, podman_image, tmp_path):
    file = tmp_path / "task/compose.yaml"
    file.parent.mkdir()
    services = {"main": {"image": podman_image}, "db": {"image": podman_image, "command": ["sleep", "1000"]}}
    file.write_text(json.dumps({"services": services}))
    sandbox = podman.sandbox(SandboxRequest(name="t", root=Root(image=podman_image, compose=file)))
    await sandbox.start()
    try:
        database = sandbox.companion("db")
        script = (
            "mkdir -p /dump/in && echo rows > /dump/in/a.sql && ln -s /etc/passwd /dump/link && id -u; exit 3"
        )
        result = await database.exec(["sh", "-c", script], timeout_s=60)
        assert (result.exit_code, result.stdout) == (3, b"0\n")
        assert (await database.exec(["id", "-u"], user="1000")).stdout == b"1000\n"
        assert (await database.exec(["sleep", "100"], timeout_s=0.1)).timed_out
        copied = await database.download("/dump", tmp_path / "out", max_bytes=MB)
        assert copied.dropped_count == 1
        assert (tmp_path / "out/in/a.sql").read_text() == "rows\n"
        assert not (tmp_path / "out/link").is_symlink()
        await database.download("/dump/in/a.sql", tmp_path / "one.sql", max_bytes=MB)
        assert (tmp_path / "one.sql").read_text() == "rows\n"
        with pytest.raises(FileNotFoundError):
            await database.download("/none", tmp_path / "none", max_bytes=MB)
        with pytest.raises(SandboxError, match="'web' is not running"):
            await sandbox.companion("web").exec(["true"])
    finally:
        await sandbox.stop()
    with pytest.raises(SandboxError, match="no compose file"):
        sandbox.companion("db")


async def test_without_podman_compose_a_compose_file_is_a_typed_error(
    podman, podman_image, tmp_path, monkeypatch
):
    await podman.adjustment()
    monkeypatch.setattr(shutil, "which", lambda _: None)
    (tmp_path / "compose.yaml").write_text("services: {main: {image: x}}")
    root = Root(image=podman_image, compose=tmp_path / "compose.yaml")
    with pytest.raises(SandboxError, match="install podman-compose"):
        await podman.sandbox(SandboxRequest(name="t", root=root)).start()


CONTROLLER = """
import asyncio, sys
from pathlib import Path
from proctor.sandbox.base import *
from proctor.sandbox.container.backend import Containers
from proctor.sandbox.container.engine import PODMAN

async def main():
    backend = Containers(PODMAN, Path(sys.argv[1]), cache_dir=Path(sys.argv[2]))
    for number in range(2):
        sandbox = backend.sandbox(SandboxRequest(name=f"s{number}", root=Root(image=sys.argv[3])))
        await sandbox.start()
        await sandbox.exec(["sh", "-c", "setsid sleep 12347 >/dev/null 2>&1 &"])
    print(backend.folder, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.mark.fault
async def test_after_kill_9_of_the_controller_nothing_is_left(podman, podman_image, tmp_path):
    home = tmp_path / "podman"
    command = [sys.executable, "-c", CONTROLLER, str(home), str(podman.cache_dir), podman_image]
    controller = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    folder = Path((await controller.stdout.readline()).decode().strip())
    controller.kill()
    await controller.wait()
    assert folder.exists()
    await podman.reap()
    assert not folder.exists()
    said = await call(["podman", "ps", "--all", "--quiet", "--filter", f"label=proctor.owner={folder.name}"])
    assert said.out == ""
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if _sleeps(path)]
    assert await podman.reap() == ()


def _sleeps(cmdline):
    try:
        return cmdline.read_bytes().startswith(b"sleep\x0012347")
    except OSError:
        return False


async def test_a_socket_inside_is_served_from_outside_without_a_network(start):
    sandbox = await start(network="none")
    listener = await listen(sandbox, 41114)
    port = listener.getsockname()[1]
    said = b"from outside\n"

    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(answer, sock=listener):
        result = await sandbox.exec(["bash", "-c", f"cat < /dev/tcp/127.0.0.1/{port}"], timeout_s=30)
    assert (port, result.stdout) == (41114, said)
    again = await listen(sandbox, 41114)
    assert again.getsockname()[1] > 0
    again.close()

"""Builds and services of podman from their first moment: the internet and each other, never this machine."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.errors import ImageError
from proctor.model.task import Task, TaskEnvironment
from proctor.owner import owner_name
from proctor.sandbox import network
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.choose import open_images
from proctor.sandbox.container import build
from proctor.sandbox.container.engine import call
from proctor.sandbox.network_rules import NetworkRules, own_addresses
from proctor.sandbox.probe import ADDRESS, an_outside

pytestmark = [pytest.mark.anyio, pytest.mark.needs("podman", "root")]
LABEL = f"proctor.test=guarded-{os.getpid()}"
LINK_LOCAL, PRIVATE = "169.254.77.7", "10.254.77.7"
TRY = """
import socket, struct, sys
port, *addresses = sys.argv[1:]
rows = [line.split() for line in open("/proc/net/route").read().splitlines()[1:]]
for _, subnet, gateway, *_, in rows:
    number = int(gateway, 16) or int(subnet, 16) | 1 << 24  # a network's first address is this machine's
    addresses.append(socket.inet_ntoa(struct.pack("<I", number)))
for address in addresses:
    try:
        with socket.create_connection((address, int(port)), 3) as line:
            print(address, line.recv(100).decode() or "reached")
    except OSError as error:
        print(address, "refused")
"""


class Listener:
    """A service of this machine on all of its addresses, two more among them; it knows who came."""

    def __init__(self) -> None:
        self.server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port = self.server.getsockname()[1]
        self.callers: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                line, address = self.server.accept()
            except OSError:
                return
            self.callers.append(address[0])
            line.sendall(b"reached")
            line.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    device = f"prt{os.getpid()}"
    subprocess.run(["ip", "link", "add", device, "type", "veth", "peer", "name", f"{device}b"], check=True)
    try:
        for address in (LINK_LOCAL, PRIVATE):
            subprocess.run(["ip", "address", "add", f"{address}/32", "dev", device], check=True)
        subprocess.run(["ip", "link", "set", device, "up"], check=True)
        made = Listener()
        yield made
        made.server.close()
    finally:
        subprocess.run(["ip", "link", "delete", device], check=True)


@pytest.fixture
def folder(tmp_path: Path, podman_image: str) -> Path:
    """The environment of a task; its Dockerfile begins with the image of the tests."""
    made = tmp_path / "task/environment"
    made.mkdir(parents=True)
    (made / "try.py").write_text(TRY)
    (made / "Dockerfile").write_text(f"FROM {podman_image}\nLABEL {LABEL}\nCOPY try.py /try.py\n")
    return made


@pytest.fixture
async def images(podman, tmp_path):
    made = open_images(podman, tmp_path / "images")
    yield made
    await made.close()
    await call(["podman", "image", "prune", "--all", "--force", "--filter", f"label={LABEL}"])


def task_in(folder: Path, **environment) -> Task:
    environment = TaskEnvironment(folder=folder, dockerfile=folder / "Dockerfile", **environment)
    return Task(name="t", path=folder.parent, digest=str(os.urandom(8)), environment=environment)


async def read(podman, root: Root, path: str) -> str:
    sandbox = podman.sandbox(SandboxRequest(name="look", root=root))
    await sandbox.start()
    try:
        return (await sandbox.exec(["cat", path])).stdout.decode()
    finally:
        await sandbox.stop()


def refused(lines: str) -> list[str]:
    words = [line.split() for line in lines.splitlines()]
    assert words, "it tried something"
    assert {answer for _, answer in words} == {"refused"}, lines
    return [address for address, _ in words]


@pytest.mark.parametrize("routed", [True, False], ids=["routed", "by a proxy"])
async def test_a_step_of_a_build_reaches_nothing_of_this_machine(
    podman, images, folder, listener, routed, monkeypatch
):
    if not routed:
        monkeypatch.setattr(network, "obstacle", lambda: "no slirp4netns")
    file = folder / "Dockerfile"
    tried = f"{listener.port} 127.0.0.1 {LINK_LOCAL} {PRIVATE} 10.0.2.2 ::1"
    file.write_text(file.read_text() + f"RUN python3 /try.py {tried} > /tried  # {routed}\n")
    root = await images.root(task_in(folder))
    assert len(refused(await read(podman, root, "/tried"))) >= 5
    assert listener.callers == []


async def test_an_address_that_a_build_adds_is_not_this_machine_s(images, folder, listener):
    file = folder / "Dockerfile"
    file.write_text(file.read_text() + f"ADD http://127.0.0.1:{listener.port}/secret /secret\n")
    with pytest.raises(ImageError, match="build ended with exit code"):
        await images.root(task_in(folder))
    assert listener.callers == []


FETCH = """
import sys, urllib.request
for address in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(f"http://{address}/", timeout=5).read().decode().strip())
    except OSError as error:
        print("refused")
"""


@pytest.mark.needs("slirp4netns", "bubblewrap")
async def test_a_build_reaches_the_internet_and_what_was_opened(podman, images, folder, tmp_path):
    backend = Bubblewrap(tmp_path / "outside")
    async with an_outside(backend) as place:
        podman.network_rules = NetworkRules(allow=("10.9.9.9",), outside=f"/proc/{place.init_pid}/ns/net")
        (folder / "fetch.py").write_text(FETCH)
        file = folder / "Dockerfile"
        tried = f"{ADDRESS} 10.9.9.9 10.1.2.3 169.254.169.254"
        steps = (
            "COPY fetch.py /f.py",
            f"RUN python3 /f.py {tried} > /got",
            f"ADD http://{ADDRESS}/x /added",
            "RUN cat /etc/resolv.conf > /names",
        )
        file.write_text(file.read_text() + "\n".join(steps) + "\n")
        root = await images.root(task_in(folder))
    await backend.close()
    assert (await read(podman, root, "/got")).split() == ["proctor", "proctor", "refused", "refused"]
    assert await read(podman, root, "/added") == "proctor\n"
    assert await read(podman, root, "/names") == "nameserver 10.0.2.3\n"


async def test_a_builds_network_leaves_nothing(podman, images, folder):
    await images.root(task_in(folder))
    listed = (await call(["podman", "ps", "--all", "--format", "{{.Names}}"])).out
    assert not [name for name in listed.split() if f"-{id(podman):x}-" in name]
    tags = (await call(["podman", "images", "--format", "{{.Tag}}"])).out.split()
    assert not [tag for tag in tags if tag.startswith(f"build-{owner_name()}.")]


def compose(folder: Path, services: dict[str, object]) -> Path:
    file = folder / "compose.yaml"
    file.write_text(json.dumps({"services": services, "volumes": {"shared": None}}))
    return file


SERVE = "sh -c 'python3 /try.py {port} {addresses} > /shared/{name}; exec python3 -m http.server 8000'"


@pytest.mark.needs("podman-compose")
@pytest.mark.parametrize("mode", ["none", "public"])
async def test_services_reach_each_other_and_nothing_of_this_machine_from_their_first_moment(
    podman, images, folder, listener, mode
):
    addresses = f"{LINK_LOCAL} {PRIVATE}"
    web, db = (SERVE.format(port=listener.port, addresses=addresses, name=name) for name in ("web", "db"))
    file = compose(
        folder,
        {
            "main": {"build": ".", "depends_on": ["web"], "volumes": ["shared:/shared"]},
            "web": {"build": ".", "command": web, "volumes": ["shared:/shared"]},
            "db": {"build": ".", "command": db, "volumes": ["shared:/shared"]},
        },
    )
    root = await images.root(task_in(folder, compose=file))
    assert set(root.companions) == {"web", "db"}
    sandbox = podman.sandbox(SandboxRequest(name="t", root=root, limits=Limits(network=mode)))
    await sandbox.start()
    try:
        for name in ("web", "db"):
            ready = f"import socket; socket.create_connection(('{name}', 8000), 2)"
            async with asyncio.timeout(60):
                while (await sandbox.exec(["python3", "-c", ready])).exit_code:  # noqa: ASYNC110 - not ours to tell
                    await asyncio.sleep(0.1)
            tried = refused((await sandbox.exec(["cat", f"/shared/{name}"])).stdout.decode())
            assert len(tried) >= 3, "the machine's end of the bridge is among them"
        bridges = [f"{each}%eth0" for each in own_addresses() if each.startswith("fe80:")]
        tries = ["python3", "/try.py", str(listener.port), *addresses.split(), *bridges]
        inside = await sandbox.exec(tries, timeout_s=120)
        assert refused(inside.stdout.decode())
        status = await sandbox.companion("db").exec(["grep", "CapBnd", "/proc/1/status"])
        assert not int(status.stdout.split()[1], 16) >> 13 & 1, "raw sockets would pass by the rules"
    finally:
        await sandbox.stop()
    assert listener.callers == []


@pytest.mark.needs("podman-compose")
async def test_a_service_that_is_started_again_is_kept_by_the_same_rules(podman, images, folder, listener):
    again = f"sh -c 'python3 /try.py {listener.port} {PRIVATE} >> /shared/tried; sleep 1; exit 1'"
    services = {
        "main": {"build": ".", "volumes": ["shared:/shared"]},
        "web": {"build": ".", "command": again, "restart": "always", "volumes": ["shared:/shared"]},
    }
    root = await images.root(task_in(folder, compose=compose(folder, services)))
    sandbox = podman.sandbox(SandboxRequest(name="t", root=root))
    await sandbox.start()
    try:
        async with asyncio.timeout(60):
            while True:
                tried = (await sandbox.exec(["cat", "/shared/tried"])).stdout.decode()
                if tried.count(PRIVATE) >= 3:
                    break
                await asyncio.sleep(0.1)
        refused(tried)
    finally:
        await sandbox.stop()
    assert listener.callers == []


def test_docker_does_not_fetch_for_a_dockerfile(tmp_path):
    file = tmp_path / "Dockerfile"
    for line in (
        "ADD http://127.0.0.1/x /x",
        "ADD $WHERE /x",
        "ONBUILD ADD https://a/x /x",
        "add git@a:b /x",
    ):
        file.write_text(f"FROM scratch\n{line}\n")
        with pytest.raises(ImageError, match="Dockerfile:2: ADD of an address"):
            build.refuse_fetched_by_daemon(file)
    file.write_text("FROM scratch\nADD a.tar /x\nCOPY b /b\nRUN curl http://a/$B\n")
    build.refuse_fetched_by_daemon(file)

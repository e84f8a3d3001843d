"""Engines, played by a script that answers like podman from a folder of saved images."""

# Scripts are kept whole, processes are short, and files that others make are waited for by looking.
# ruff: noqa: ASYNC110, E501

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.sandbox.image.archives import docker_archive, host_layer, layer

from proctor.errors import ImageError
from proctor.processes import start_ticks
from proctor.sandbox.container import build as building
from proctor.sandbox.container.backend import Containers
from proctor.sandbox.container.build import BuildRequest
from proctor.sandbox.container.engine import DOCKER, PODMAN, Adjustment, Engine
from proctor.sandbox.image import engines
from proctor.sandbox.image.layered import LayeredImages
from proctor.sandbox.network_rules import NetworkRules, own_addresses

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]

SCRIPT = """#!/bin/sh
here=$(dirname "$0"); echo "$*" >> "$here/calls"
last() { for word in "$@"; do :; done; echo "$word" | tr '/:' '__'; }
case "$1 $2" in
  "image inspect") file="$here/images/$(last "$@")"; [ -f "$file" ] || { echo "no such image"; exit 125; }
    sha256sum < "$file" | cut -c1-64;;
  "save "*) cp "$here/images/$(last "$@")" "$5";;
  "build "*) while [ "$1" != --tag ]; do shift; done
    if grep -q broken "$4"; then echo "step 1 is broken"; exit 3; fi
    cp "$here/template.tar" "$here/images/$(echo "$2" | tr '/:' '__')"; touch "$here/overlay-images/images.json";;
  "rmi "*) rm "$here/images/$(last "$@")"; echo >> "$here/overlay-images/images.json";;
esac
"""


@dataclass
class Played:
    engine: Engine
    folder: Path

    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def has(self, reference: str, layers: list[bytes]) -> None:
        name = reference.replace("/", "_").replace(":", "_")
        docker_archive(self.folder / "images" / name, layers, [])
        self.changed()

    def changed(self) -> None:
        number = len(list((self.folder / "overlay-images").iterdir())) + os.urandom(3)[0]
        (self.folder / "overlay-images" / "images.json").write_text("x" * number)


@pytest.fixture
def podman(tmp_path, monkeypatch) -> Played:
    folder = tmp_path / "engine"
    for name in ("images", "overlay-images"):
        (folder / name).mkdir(parents=True)
    program = folder / "podman"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    played = Played(engine=replace(PODMAN, program=str(program)), folder=folder)
    played.changed()
    monkeypatch.setattr(engines, "installed", lambda: (played.engine,))
    monkeypatch.setattr(engines, "_podman_roots", lambda: [folder])
    return played


async def test_an_image_comes_from_the_engine_s_storage_once(
    podman, real_images, images_dir, backend, make_task, look
):
    podman.has("debian:12", [host_layer(), layer({"mark": b"from podman"})])
    text = "FROM debian:12\nRUN cat /mark > /copy\n"
    root = await real_images.root(make_task(text))
    assert not root.host
    assert await look(root, "cat /copy") == "from podman"
    asked = len(podman.calls())
    again = await LayeredImages(images_dir, backend).root(make_task(text))
    assert again == root
    assert len(podman.calls()) == asked, "nothing changed there, so nobody asks"
    podman.changed()
    assert await LayeredImages(images_dir, backend).root(make_task(text)) == root
    assert [call.split()[0] for call in podman.calls()[asked:]] == ["image"], "asked, but not saved again"
    podman.has("debian:12", [host_layer(), layer({"mark": b"newer"})])
    assert await look(await LayeredImages(images_dir, backend).root(make_task(text)), "cat /copy") == "newer"


async def test_an_engine_without_any_image_is_not_even_asked(podman, real_images, make_task):
    (podman.folder / "overlay-images" / "images.json").unlink()
    with pytest.raises(ImageError, match="debian:12 is in no registry"):
        await real_images.root(make_task("FROM debian:12\n"))
    assert podman.calls() == []


async def test_what_our_builder_cannot_do_is_built_by_the_engine(
    podman, real_images, images_dir, backend, make_task, monkeypatch
):
    """Without its network, which takes a real engine: see `test_a_build_of_the_engine_is_in_our_network`."""

    async def adjustment(_):
        return Adjustment()

    @contextlib.asynccontextmanager
    async def connected(*_):
        yield building._BuildNetwork(env={})

    monkeypatch.setattr(Containers, "adjustment", adjustment)
    monkeypatch.setattr(building, "_build_network", connected)
    docker_archive(podman.folder / "template.tar", [host_layer()], [])
    text = "FROM a\nADD git@example.org:x.git /x\n"
    root = await real_images.root(make_task(text))
    assert len(root.layers) == 1
    assert root.env["FROM_IMAGE"] == "yes"
    assert list((podman.folder / "images").iterdir()) == [], "nothing of ours stays with the engine"
    assert await LayeredImages(images_dir, backend).root(make_task(text)) == root
    assert sum(call.startswith("build") for call in podman.calls()) == 1
    with pytest.raises(
        ImageError, match=r"podman build ended with exit code 3 (?s:.)*\n  \| step 1 is broken"
    ):
        await real_images.root(make_task(text + "# broken\n", name="other"))


async def test_a_failing_save_and_an_unknown_program_are_image_errors(podman, tmp_path):
    with pytest.raises(ImageError, match="podman save x failed"):
        await engines.save(podman.engine, "x", tmp_path / "out")
    with pytest.raises(ImageError, match="cannot run"):
        await engines.image_id(replace(PODMAN, program="/no/such"), "x")


async def test_a_cancelled_engine_is_killed_with_its_children(tmp_path):
    program = tmp_path / "slow"
    program.write_text(f"#!/bin/sh\nsleep 1000 & echo $! > {tmp_path}/pid; wait\n")
    program.chmod(0o755)
    asking = asyncio.ensure_future(engines.image_id(replace(PODMAN, program=str(program)), "x"))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    while start_ticks(int((tmp_path / "pid").read_text())) is not None:
        await asyncio.sleep(0.01)


def test_storage_is_looked_for_where_podman_s_settings_say(tmp_path, monkeypatch):
    conf = tmp_path / "storage.conf"
    conf.write_text(f'[storage]\ngraphroot = "{tmp_path}/elsewhere"\n')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(conf))
    (tmp_path / "elsewhere/vfs-images").mkdir(parents=True)
    (tmp_path / "elsewhere/vfs-images/images.json").write_text(json.dumps([]))
    assert str(tmp_path) in (engines.stamp(replace(PODMAN, program="")) or "")
    assert engines.stamp(DOCKER) is None


def test_the_storage_of_another_account_is_left_alone(tmp_path, monkeypatch):
    class Closed(type(tmp_path)):
        def glob(self, pattern):
            raise PermissionError(pattern)

    monkeypatch.setattr(engines, "_podman_roots", lambda: [Closed(tmp_path)])
    assert engines.stamp(replace(PODMAN, program="")) == ""


def test_engines_are_found_by_their_programs_and_docker_by_its_daemon(tmp_path, monkeypatch):
    monkeypatch.undo()
    for name in ("podman", "docker"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "unix:///somewhere")
    assert [each.name for each in engines.installed()] == ["podman", "docker"]
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert engines.installed() == ()


@pytest.mark.needs("podman", "root")
async def test_a_build_of_the_engine_is_in_our_network(podman_image, tmp_path):
    """The builder hands on what it cannot do; the step would reach this machine from the engine's own networks."""
    file = tmp_path / "Dockerfile"
    with socket.create_server(("0.0.0.0", 0)) as private:
        port = private.getsockname()[1]
        script = "import socket; socket.create_connection(('{}', {}), 3)"
        own = [address for address in own_addresses() if "." in address]
        steps = [f'RUN ! python3 -c "{script.format(address, port)}"' for address in own]
        file.write_text("\n".join([f"FROM {podman_image}", *steps]))
        tag = f"localhost/proctor-test-{os.getpid()}:latest"
        log = tmp_path / "log.txt"
        request = BuildRequest(
            folder=tmp_path, dockerfile=file, tag=tag, label="proctor=1", options=(), log=log
        )
        await engines.build(PODMAN, tmp_path / "home", NetworkRules(), request)
        private.settimeout(0)
        with pytest.raises(BlockingIOError):
            private.accept()
    await engines.remove(PODMAN, tag)
    assert not list((tmp_path / "home/podman-sandboxes").glob("*/s*"))

"""Built layers go from machine to machine: once built, checked by content, never for another platform."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.resources import Resources
from tests.sandbox.image.archives import docker_archive, host_layer

from proctor.runs.exchange import StoreExchange
from proctor.sandbox.base import RootOptions
from proctor.sandbox.image import sharing
from proctor.sandbox.image.build import Build
from proctor.sandbox.image.layered import LayeredImages
from proctor.sandbox.image.oci import import_image
from proctor.settings import Settings
from proctor.store.blobs import FolderBlobs
from proctor.store.garbage import collect_garbage
from proctor.store.open import open_store

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]
TEXT = (
    "FROM shell:1\nCOPY a /app/a\n"
    "RUN cat /proc/sys/kernel/random/uuid > /once && rm /app/a\nRUN cat /once > /second && rm /once\n"
)


@pytest.fixture
def machine(backend, tmp_path: Path, monkeypatch):
    """A machine: a folder of images of its own, on the store and the blobs of all."""
    built: list[str] = []
    make = Build._make

    async def counted(self, group, material, root, base, target):
        built.append(group.run.text if group.run else "copy")
        await make(self, group, material, root, base, target)

    monkeypatch.setattr(Build, "_make", counted)
    settings = Settings(home=tmp_path / "home", share_builds=True)
    archive = docker_archive(tmp_path / "shell.tar", [host_layer()], ["shell:1"])

    async def opened(name: str) -> LayeredImages:
        built.clear()
        roots = LayeredImages(
            tmp_path / name, backend, RootOptions(exchange=StoreExchange(Resources(settings)))
        )
        await roots.store.open()
        await import_image(roots.store, roots.references, archive)
        return roots

    opened.built, opened.settings = built, settings
    return opened


async def test_another_machine_takes_what_one_has_built(machine, make_task, look):
    task = make_task(TEXT, files={"a": "content"})
    first = await (await machine("one")).root(task)
    assert len(machine.built) == 2, "COPY and RUN are one step"
    once = await look(first, "cat /second")
    second = await (await machine("two")).root(task)
    assert machine.built == []
    assert second.digest == first.digest
    script = "cat /second; test -e /app/a || echo gone; test -e /once || echo gone"
    assert await look(second, script) == f"{once}\ngone\ngone"


async def test_a_machine_of_another_architecture_builds_for_itself(machine, make_task, monkeypatch):
    task = make_task(TEXT, files={"a": "content"})
    await (await machine("one")).root(task)
    other = await machine("two")
    monkeypatch.setattr(sharing, "architecture", lambda: "other")
    await other.root(task)
    assert len(machine.built) == 2


async def test_what_is_damaged_or_gone_is_built_and_offered_again(machine, make_task):
    task = make_task(TEXT, files={"a": "content"})
    await (await machine("one")).root(task)
    blobs = FolderBlobs(Path(machine.settings.blobs_url))
    damaged, gone = (each.digest for each in blobs.list())
    blobs.path(damaged).write_bytes(b"something else")
    blobs.path(gone).unlink()
    await (await machine("two")).root(task)
    assert len(machine.built) == 2
    await (await machine("three")).root(task)
    assert machine.built == []


async def test_what_used_a_cache_of_the_machine_is_not_offered(machine, make_task):
    text = (
        "FROM shell:1\nRUN echo 1 > /one\nRUN --mount=type=cache,target=/c echo x >> /c/f; cat /c/f > /f\n"
        "RUN echo 2 > /two\n"
    )
    await (await machine("one")).root(make_task(text))
    await (await machine("two")).root(make_task(text))
    assert len(machine.built) == 2, "the first step was taken, the others were made"


async def test_shared_layers_stay_while_they_are_used_and_go_when_nobody_takes_them(machine, make_task):
    await (await machine("one")).root(make_task(TEXT, files={"a": "content"}))
    blobs = FolderBlobs(Path(machine.settings.blobs_url))
    with open_store(machine.settings.store_url) as store:
        assert collect_garbage(store, blobs, grace_s=0).removed == 0
        assert store.shared_layers.prune(max_bytes=0) == 2
        assert collect_garbage(store, blobs, grace_s=0).removed == 2


async def test_a_layer_that_is_too_large_stays_here(machine, make_task):
    roots = await machine("one")
    roots.exchange.max_bytes = 512
    await roots.root(make_task("FROM shell:1\nRUN cat /bin/sh /bin/ls > /large\n"))
    assert list(FolderBlobs(Path(machine.settings.blobs_url)).list()) == []

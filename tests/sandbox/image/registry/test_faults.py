"""What networks, servers and disks do to a pull."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.sandbox.image.archives import host_layer, layer
from tests.sandbox.image.registry.servers import Answer, Proxy, Seen, free_port

from proctor.errors import ImageError, TaskError
from proctor.sandbox.image.layered import LayeredImages
from proctor.sandbox.image.registry.access import Access, Patience
from proctor.sandbox.image.registry.client import Client
from proctor.sandbox.image.registry.pull import Progress, pull

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap", "docker-registry")]
BIG = layer({"big": random.Random(1).randbytes(3_000_000)})
PULL = """
import sys
from proctor.cli.main import main
sys.exit(main(["images", "pull", sys.argv[1], "--json"]))
"""


def cutting(after: int):
    """The first answers for a large blob end after so many bytes."""
    left = [3]

    def rule(seen: Seen, answer: Answer) -> None:
        if "/blobs/" in seen.path and len(answer.body) > 100_000 and left[0]:
            left[0] -= 1
            answer.send = after

    return rule


async def test_a_cut_connection_is_continued_where_it_ended(roots, client, pusher, repository):
    pusher.image(repository, "1", [BIG], kind="plain")
    with Proxy(pusher.host, cutting(800_000)) as proxy:
        done = await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
        asked = [each.headers.get("range") for each in proxy.paths("/blobs/")][1:]
    assert asked[0] is None
    assert len(asked) == 4
    assert all(each.startswith("bytes=") for each in asked[1:])
    assert done.downloaded_bytes == len(BIG)


async def test_a_server_that_cannot_continue_sends_all_of_it_again(roots, client, pusher, repository):
    pusher.image(repository, "1", [BIG], kind="plain")
    cut = cutting(800_000)

    def rule(seen: Seen, answer: Answer) -> None:
        if answer.status == 206:
            answer.status, answer.body = 200, BIG
            answer.headers["content-length"] = str(len(BIG))
            answer.headers.pop("content-range")
        cut(seen, answer)

    with Proxy(pusher.host, rule) as proxy:
        done = await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
    assert done.new_layers == 1
    assert done.downloaded_bytes > len(BIG)


async def test_a_server_that_never_gets_further_is_given_up_and_its_part_is_kept(
    roots, client, pusher, repository
):
    pusher.image(repository, "1", [BIG], kind="plain")
    state = {"first": True}

    def rule(seen: Seen, answer: Answer) -> None:
        if "/blobs/" in seen.path and len(answer.body) > 100_000:
            answer.send = 500_000 if state["first"] else 0
            state["first"] = False

    name = f"{repository}:1"
    with Proxy(pusher.host, rule) as proxy:
        with pytest.raises(ImageError, match=r"cannot be pulled: .*(before the layer was complete|reached)"):
            await pull(client, roots.store, roots.references, f"{proxy.host}/{name}")
        (part,) = roots.store.downloads.iterdir()
        kept = part.stat().st_size
        assert 0 < kept <= 500_000
        assert list(roots.store.layers.iterdir()) == []
        proxy.rule = lambda _seen, _answer: None
        done = await pull(client, roots.store, roots.references, f"{proxy.host}/{name}")
    assert done.downloaded_bytes == len(BIG) - kept
    assert list(roots.store.downloads.iterdir()) == []


async def test_a_damaged_part_of_an_earlier_pull_is_downloaded_anew(roots, client, pusher, repository):
    pushed = []
    pusher.image(repository, "1", [BIG], kind="plain", packed=lambda each: pushed.extend(each) or each)
    await roots.store.open()
    digest = pushed[0]["digest"].removeprefix("sha256:")
    for content in (bytes(1_000_000), BIG[:-5] + b"wrong", BIG + b"more"):
        (roots.store.downloads / digest).write_bytes(content)
        done = await pull(client, roots.store, roots.references, f"{pusher.host}/{repository}:1")
        assert done.new_layers == 1
        await roots.store.remove(roots.store.discard(done.image.layers[0]))
        roots.store._used.clear()


async def test_another_content_than_the_digest_says_is_refused(roots, client, pusher, repository):
    pusher.image(repository, "1", [BIG])

    def rule(seen: Seen, answer: Answer) -> None:
        if "/blobs/" in seen.path and len(answer.body) > 100_000:
            answer.body = answer.body[:-1000] + bytes(1000)

    with Proxy(pusher.host, rule) as proxy, pytest.raises(ImageError, match=r"another digest|decompressed"):
        await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
    assert list(roots.store.downloads.iterdir()) == []
    assert list(roots.store.layers.iterdir()) == []
    assert list(roots.references.all()) == []


@pytest.mark.parametrize("part", ["/manifests/", "/blobs/"])
async def test_another_manifest_or_configuration_than_the_digest_says_is_refused(
    roots, client, pusher, repository, part
):
    pushed = pusher.image(repository, "1", [layer({"a": b"1"})])

    def rule(seen: Seen, answer: Answer) -> None:
        if part in seen.path:
            answer.body = answer.body.replace(b"linux", b"linus").replace(b"layers", b"lagers")

    with Proxy(pusher.host, rule) as proxy:
        for reference in (f"{repository}:1", f"{repository}@{pushed['digest']}"):
            with pytest.raises(ImageError, match="it is damaged"):
                await pull(client, roots.store, roots.references, f"{proxy.host}/{reference}")


async def test_a_server_that_sends_more_than_announced_is_cut_off(roots, client, pusher, repository):
    pusher.image(repository, "1", [layer({"a": b"1"})], kind="plain")

    def rule(seen: Seen, answer: Answer) -> None:
        if "/blobs/" in seen.path and not answer.body.startswith(b"{"):
            answer.body += bytes(1000)

    with Proxy(pusher.host, rule) as proxy, pytest.raises(ImageError, match="sends more than"):
        await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
    assert list(roots.store.layers.iterdir()) == []


@pytest.mark.parametrize(
    "header", [{}, {"Retry-After": "0"}, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}]
)
async def test_a_busy_registry_is_asked_again(roots, client, pusher, repository, header):
    pusher.image(repository, "1", [layer({"a": b"1"})])
    statuses = [429, 503, 429]

    def rule(_seen: Seen, answer: Answer) -> None:
        if statuses:
            answer.status = statuses.pop()
            answer.headers |= header
            answer.body = b"slow down"

    with Proxy(pusher.host, rule) as proxy:
        done = await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
    assert done.new_layers == 1


@pytest.mark.parametrize(
    ("wait", "said"), [("", "rate limit of .* reached"), ("3600", "asks to wait 3600 s")]
)
async def test_a_rate_limit_that_stays_is_explained(roots, client, pusher, repository, wait, said):
    def rule(_seen: Seen, answer: Answer) -> None:
        answer.status = 429
        answer.body = b'{"errors": [{"message": "too many \\u001b[31m requests"}]}'
        if wait:
            answer.headers["Retry-After"] = wait

    with Proxy(pusher.host, rule) as proxy, pytest.raises(ImageError, match=said) as caught:
        await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
    text = str(caught.value)
    assert "docker login" in text
    assert "registry_mirrors" in text
    assert "too many" in text
    assert "\x1b" not in text
    assert len(proxy.seen) == (2 if wait else 6)  # the first finds out whether TLS is spoken


async def test_a_registry_that_cannot_be_reached_is_said_once_and_soon(roots, make_task):
    host = f"127.0.0.1:{free_port()}"
    with pytest.raises(ImageError, match=f"{host} cannot be reached.*images import") as first:
        await roots.image(f"{host}/x:1")
    with Proxy("") as proxy:  # now somebody would answer
        roots.access = Access(mirrors={host: ((proxy.host, ""),)})
        with pytest.raises(ImageError) as second:
            await roots.image(f"{host}/x:1")
        assert proxy.seen == []
    assert str(second.value) == str(first.value)
    with pytest.raises(ImageError, match=r"cannot be resolved: no network"):
        await roots.image("registry.invalid/x:1")


async def test_a_server_that_takes_no_connection_is_not_waited_for_long(roots):
    with socket.socket() as deaf, contextlib.ExitStack() as waiting:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(4):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(deaf.getsockname())
        roots.access = Access(patience=Patience(connect_s=0.2))
        with pytest.raises(ImageError, match="no connection within the time limit"):
            await roots.image(f"127.0.0.1:{deaf.getsockname()[1]}/x:1")


async def test_a_name_that_is_none_is_the_fault_of_the_task(roots):
    with pytest.raises(TaskError, match="is not the name of an image"):
        await roots.image("Upper:1")


async def test_many_who_want_an_image_ask_for_it_once(roots, pusher, repository):
    pusher.image(repository, "1", [layer({"a": b"1"})])
    with Proxy(pusher.host) as proxy:
        found = await asyncio.gather(*(roots.image(f"{proxy.host}/{repository}:1") for _ in range(5)))
        assert len(proxy.paths("/manifests/")) == 1
    assert len({image.id for image in found}) == 1


async def test_a_pull_that_is_cancelled_keeps_what_arrived(roots, client, pusher, repository):
    pusher.image(repository, "1", [BIG], kind="plain")
    stuck = threading.Event()

    def rule(seen: Seen, answer: Answer) -> None:
        if "/blobs/" in seen.path and len(answer.body) > 100_000:
            answer.send, answer.then = 1_000_000, stuck

    arrived = asyncio.Event()

    def told(progress: Progress) -> None:
        if progress.bytes >= 1_000_000:
            arrived.set()

    with Proxy(pusher.host, rule) as proxy:
        name = f"{proxy.host}/{repository}:1"
        pulling = asyncio.create_task(pull(client, roots.store, roots.references, name, on_progress=told))
        await arrived.wait()
        pulling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pulling
        stuck.set()
    assert [each.stat().st_size for each in roots.store.downloads.iterdir()] == [1_000_000]
    assert list(roots.store.layers.iterdir()) == []


async def test_an_image_that_is_here_asks_nobody(roots, pusher, repository, real_images, make_task):
    pusher.image(repository, "1", [host_layer()])
    with Proxy(pusher.host) as proxy:
        name = f"{proxy.host}/{repository}:1"
        first = await roots.image(name)
        proxy.seen.clear()
        assert await roots.image(name) == first
        root = await real_images.root(make_task(f"FROM {name}\nENV A=1\n"))
        assert proxy.seen == []
    assert root.image_digest == first.digest


async def test_a_mirror_is_asked_first_and_the_registry_when_it_fails(roots, pusher, repository):
    pusher.image(repository, "1", [BIG], kind="plain")
    name = f"{pusher.host}/{repository}:1"
    prefix = "cache"

    def without_prefix(seen: Seen, answer: Answer) -> None:
        answer.status, answer.body = 404, b""

    with Proxy("", without_prefix) as broken:
        mirrors = {pusher.host: ((f"127.0.0.1:{free_port()}", ""), (broken.host, prefix))}
        async with Client(Access(mirrors=mirrors, patience=Patience(first_wait_s=0.01))) as client:
            done = await pull(client, roots.store, roots.references, name)
        assert done.image.reference == name
        assert [each.path for each in broken.paths("manifests")] == [f"/v2/cache/{repository}/manifests/1"]
        assert broken.paths("blobs") == []


async def test_a_mirror_that_has_the_manifest_but_not_the_layers_is_left(roots, pusher, repository):
    pusher.image(repository, "1", [BIG], kind="plain")

    def rule(seen: Seen, answer: Answer) -> None:
        if "/blobs/" in seen.path:
            answer.status, answer.body = 404, b""

    with Proxy(pusher.host, rule) as proxy:
        mirrors = {pusher.host: ((proxy.host, ""),)}
        async with Client(Access(mirrors=mirrors, patience=Patience(first_wait_s=0.01))) as client:
            done = await pull(client, roots.store, roots.references, f"{pusher.host}/{repository}:1")
    assert done.new_layers == 1


def test_two_processes_download_each_layer_once(pusher, repository, tmp_path):
    pusher.image(repository, "1", [layer({f"{n}": bytes(n * 1000)}) for n in range(1, 7)], kind="plain")
    with Proxy(pusher.host) as proxy:
        command = [sys.executable, "-c", PULL, f"{proxy.host}/{repository}:1"]
        running = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
            for _ in range(2)
        ]
        outputs = [process.communicate(timeout=120) for process in running]
        assert [process.returncode for process in running] == [0, 0], outputs
        asked = proxy.blobs()
    rows = [json.loads(out)[0] for out, _ in outputs]
    assert rows[0]["digest"] == rows[1]["digest"]
    assert sorted(asked.count(each) for each in set(asked)) == [
        1,
        1,
        1,
        1,
        1,
        1,
        2,
    ]  # both read the configuration


def test_a_killed_pull_goes_on_where_it_was(pusher, repository, tmp_path):
    pusher.image(repository, "1", [BIG], kind="plain")
    stuck = threading.Event()

    def rule(seen: Seen, answer: Answer) -> None:
        if "/blobs/" in seen.path and len(answer.body) > 100_000 and "range" not in seen.headers:
            answer.send, answer.then = 1_000_000, stuck

    home = Path(os.environ["PROCTOR_HOME"])
    with Proxy(pusher.host, rule) as proxy:
        command = [sys.executable, "-c", PULL, f"{proxy.host}/{repository}:1"]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path
        )
        folder, deadline = home / "cache/images/downloads", time.monotonic() + 60
        while sum(each.stat().st_size for each in folder.glob("*")) < 1_000_000:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
        stuck.set()
        done = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path)
    (row,) = json.loads(done.stdout)
    assert row["downloaded_bytes"] == len(BIG) - 1_000_000
    assert list(folder.iterdir()) == []
    assert [each for each in (home / "cache/images/layers").iterdir() if each.name.startswith(".")] == []


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=755", "none", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.needs("root")
async def test_too_little_room_is_said_before_anything_is_downloaded(
    backend, client, pusher, repository, small_disk
):
    roots = LayeredImages(small_disk / "images", backend)
    pusher.image(repository, "1", [BIG, BIG[:1_000_000]], kind="plain")
    with Proxy(pusher.host) as proxy:
        with pytest.raises(ImageError, match=r"needs at least 7 MB, and [1-6] MB are free at .*images gc"):
            await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
        assert len(proxy.blobs()) == 1  # the configuration
    assert list(roots.store.downloads.iterdir()) == []


@pytest.mark.needs("root")
async def test_a_disk_that_fills_up_during_a_download(backend, client, pusher, repository, small_disk):
    roots = LayeredImages(small_disk / "images", backend)
    pusher.image(repository, "1", [layer({"a": random.Random(3).randbytes(2_000_000)})], kind="plain")

    def rule(seen: Seen, answer: Answer) -> None:
        if "/blobs/" in seen.path and len(answer.body) > 100_000:
            with (small_disk / "other").open("wb", buffering=0) as other, contextlib.suppress(OSError):
                while other.write(bytes(10_000)):
                    pass
                other.write(bytes(10_000))

    with Proxy(pusher.host, rule) as proxy, pytest.raises(ImageError, match=r"is full.*images gc"):
        await pull(client, roots.store, roots.references, f"{proxy.host}/{repository}:1")
    assert list(roots.references.all()) == []
    assert list(roots.store.layers.iterdir()) == []
    assert list(roots.store.downloads.iterdir()) == []


@pytest.mark.needs("root")
async def test_a_disk_that_fills_up_while_a_layer_is_unpacked(
    backend, client, pusher, repository, small_disk
):
    roots = LayeredImages(small_disk / "images", backend)
    pusher.image(repository, "1", [layer({"a": b"abcdefgh" * 1_000_000})])  # small until it is unpacked
    with pytest.raises(ImageError, match=r"is full.*images gc"):
        await pull(client, roots.store, roots.references, f"{pusher.host}/{repository}:1")
    assert list(roots.store.layers.iterdir()) == []
    assert list(roots.store.downloads.iterdir()) == []

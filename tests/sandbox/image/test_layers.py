from __future__ import annotations

import asyncio
import os

import pytest

from proctor.owner import owner_name
from proctor.sandbox import state
from proctor.sandbox.image.layers import LayerStore, collect_garbage
from proctor.sandbox.image.recipe import Settings
from proctor.sandbox.image.references import Image, References

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]


@pytest.fixture
async def store(backend, images_dir) -> LayerStore:
    made = LayerStore(images_dir, backend)
    await made.open()
    return made


async def put(store: LayerStore, key: str, *, size: int = 0) -> None:
    async def make(target) -> None:
        await state.make_folders(await store.keeper(), target)
        if size:
            (target / "data").write_bytes(os.urandom(size))

    await store.obtain(key, make)


async def test_a_layer_is_made_once_however_many_want_it(store):
    made = []

    async def make(target) -> None:
        made.append(target)
        await asyncio.sleep(0.02)
        target.mkdir()

    places = await asyncio.gather(*(store.obtain("key", make) for _ in range(20)))
    assert len(made) == 1
    assert set(places) == {store.layers / "key"}


async def test_a_failed_build_leaves_nothing_and_the_next_may_succeed(store):
    async def fail(target) -> None:
        target.mkdir()
        (target / "half").write_text("x")
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await store.obtain("key", fail)
    assert list(store.layers.iterdir()) == []
    await put(store, "key")
    assert store.find("key")


async def test_what_a_killed_builder_left_is_removed_and_a_living_one_s_work_is_not(
    backend, store, images_dir
):
    dead = store.layers / ".building-999999999-1-0"
    foreign = store.layers / ".building-nonsense"
    alive = store.layers / f".building-{owner_name()}-77"
    for folder in (dead, foreign, alive):
        folder.mkdir()
    await LayerStore(images_dir, backend).open()
    assert list(store.layers.iterdir()) == [alive]


async def test_two_who_made_the_same_layer_agree(store):
    async def slow(target) -> None:
        target.mkdir()
        (store.layers / "key").mkdir()  # another process was faster
        (store.layers / "key" / "theirs").touch()

    assert await store.obtain("key", slow) == store.layers / "key"
    assert [each.name for each in store.layers.iterdir()] == ["key"]


def forget(store: LayerStore, key: str, at: float) -> None:
    """As if no living process used a layer, and one last did at that time."""
    (store.users / owner_name()).unlink(missing_ok=True)
    os.utime(store.locks / key, (at, at))


async def test_old_layers_go_and_used_ones_stay(store, backend, images_dir):
    await put(store, "old")
    await put(store, "new")
    forget(store, "old", 1000)
    forget(store, "new", 9000)
    references = References(images_dir / "references")
    done = await collect_garbage(store, references, now=10_000, max_age_s=2000)
    assert (done.removed, done.kept) == (1, 1)
    assert [each.name for each in store.layers.iterdir()] == ["new"]
    fresh = LayerStore(images_dir, backend)
    assert fresh.find("old") is None
    assert fresh.find("new")
    assert (await collect_garbage(fresh, references, now=1e12, max_age_s=0)).removed == 0, (
        "in use by a living process"
    )
    (store.users / "999999999-1").write_text("new\n")
    (store.users / owner_name()).unlink()
    assert (await collect_garbage(store, references, now=1e12, max_age_s=0)).removed == 1
    assert not (store.users / "999999999-1").exists()


async def test_the_least_recently_used_go_first_until_the_rest_fits(store, images_dir):
    for number, key in enumerate(("a", "b", "c")):
        await put(store, key, size=100_000)
        forget(store, key, 1000 + number)
    done = await collect_garbage(store, References(images_dir / "references"), now=1100, max_bytes=150_000)
    assert [each.name for each in store.layers.iterdir()] == ["c"]
    assert done.removed == 2
    assert done.removed_bytes > 200_000
    assert 100_000 < done.kept_bytes < 150_000


async def test_imported_images_stay_unless_they_are_meant(store, images_dir):
    await put(store, "layer")
    forget(store, "layer", 1000)
    references = References(images_dir / "references")
    references.put(Image(reference="x", id="1", layers=("layer",), settings=Settings(), source="archive"))
    assert (await collect_garbage(store, references, now=1e12)).removed == 0
    done = await collect_garbage(store, references, now=1e12, imported=True)
    assert (done.removed, done.forgotten) == (1, ("x",))
    assert references.find("x") is None


async def test_a_damaged_reference_is_no_reference(images_dir):
    references = References(images_dir / "references")
    references.put(Image(reference="x", id="1", layers=(), settings=Settings(), source="archive"))
    (file,) = references.folder.iterdir()
    for text in ("", "[]", "{}", '{"reference": "x"}'):
        file.write_text(text)
        assert references.find("x") is None

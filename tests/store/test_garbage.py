"""Garbage is what nothing refers to and nobody has just put, on whatever machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proctor.store.blobs import FolderBlobs
from proctor.store.garbage import Collected, collect_garbage, remove_orphans
from proctor.store.store import Store

RUN = "r1"


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs")


def refer(store: Store, make, blobs: FolderBlobs, content: bytes, run_id: str = RUN) -> str:
    make.run(store, run_id, size=1)
    ((lease, _),), _ = store.take(run_id, worker="w", lease_s=30)
    artifact = blobs.put_bytes(content, "x")
    store.finish(lease, make.record(lease, artifacts=(artifact,)), counts=True)
    return artifact.digest


def aged(blobs: FolderBlobs, digest: str, age_s: float = 1e6) -> str:
    then = blobs.path(digest).stat().st_mtime - age_s
    os.utime(blobs.path(digest), (then, then))
    return digest


def test_only_what_is_old_and_not_referred_to_is_removed(store: Store, make, blobs: FolderBlobs):
    live = aged(blobs, refer(store, make, blobs, b"live"))
    old = aged(blobs, blobs.put_bytes(b"older", "x").digest)
    young = aged(blobs, blobs.put_bytes(b"young", "x").digest, 3000.0)
    found = collect_garbage(store, blobs)
    assert found == Collected(removed=1, removed_bytes=5, kept=2, kept_bytes=9)
    assert [blobs.has(each) for each in (live, old, young)] == [True, False, True]


def test_a_blob_that_is_put_again_and_not_yet_referred_to_stays(store: Store, blobs: FolderBlobs):
    digest = aged(blobs, blobs.put_bytes(b"x", "x").digest)
    blobs.put_bytes(b"x", "again")
    assert collect_garbage(store, blobs).removed == 0
    assert blobs.has(digest)


def test_a_blob_that_is_referred_to_after_it_was_listed_stays(store: Store, make, blobs: FolderBlobs):
    """A writer elsewhere put it long ago and commits while the collection goes on."""

    class Slow(FolderBlobs):
        def list(self):
            yield from super().list()
            aged(self, refer(store, make, self, b"x"))

    digest = aged(blobs, blobs.put_bytes(b"x", "x").digest)
    assert collect_garbage(store, Slow(blobs.root)).removed == 0
    assert blobs.has(digest)


def test_orphans_of_a_deleted_run_go_unless_another_run_took_them_meanwhile(
    store: Store, make, blobs: FolderBlobs
):
    own = refer(store, make, blobs, b"own")
    orphans = store.delete_run(RUN)
    assert orphans == [own]
    again = refer(store, make, blobs, b"own", "r2")
    assert (again, remove_orphans(store, blobs, orphans, grace_s=0.0)) == (own, 0)
    assert remove_orphans(store, blobs, store.delete_run("r2"), grace_s=600.0) == 0, "it is too young"
    assert remove_orphans(store, blobs, orphans, grace_s=0.0) == 1
    assert remove_orphans(store, blobs, [], grace_s=0.0) == 0

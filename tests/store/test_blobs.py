from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import threading
from pathlib import Path
from typing import Self

import pytest

from proctor.errors import NotFoundError, StoreError
from proctor.store.blobs import FolderBlobs

HOSTILE_NAMES = ["../../etc/passwd", "/etc/passwd", "a\0b", "..", "", "x" * 5000, "con\nfig", "\udcff"]


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs")


def test_bytes_come_back_under_their_digest(blobs: FolderBlobs):
    artifact = blobs.put_bytes(b"hello", "greeting.txt", "text/plain")
    assert artifact.digest == hashlib.sha256(b"hello").hexdigest()
    assert (artifact.name, artifact.size_bytes, artifact.media_type) == ("greeting.txt", 5, "text/plain")
    with blobs.open(artifact.digest) as blob:
        assert blob.read() == b"hello"
    assert blobs.has(artifact.digest)
    assert blobs.path(artifact.digest).parent.parent == blobs.root


def test_a_file_is_kept_in_pieces_and_the_original_stays(blobs: FolderBlobs, tmp_path: Path):
    source = tmp_path / "large.bin"
    source.write_bytes(os.urandom(3 << 20))
    artifact = blobs.put_file(source, "large.bin")
    assert artifact.size_bytes == 3 << 20
    assert blobs.path(artifact.digest).read_bytes() == source.read_bytes()
    assert blobs.put_file(source, "again") == blobs.put_bytes(source.read_bytes(), "again")


def test_the_same_content_is_kept_once(blobs: FolderBlobs):
    for name in ("one", "two"):
        blobs.put_bytes(b"same", name)
    assert blobs.size_bytes() == 4
    assert len(list(_files(blobs))) == 1


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_never_becomes_a_path(blobs: FolderBlobs, name: str):
    artifact = blobs.put_bytes(b"payload", name)
    assert artifact.name == name
    assert [path.name for path in _files(blobs)] == [artifact.digest]


@pytest.mark.parametrize(
    "digest", ["../../etc/passwd", "A" * 64, "a" * 63, "a" * 65, "", "a" * 64 + "\n", "/" * 64]
)
def test_what_is_no_digest_reaches_no_file(blobs: FolderBlobs, digest: str):
    for use in (blobs.open, blobs.path, blobs.has, lambda each: blobs.remove([each])):
        with pytest.raises(NotFoundError, match="not the digest"):
            use(digest)


def test_a_blob_that_is_not_there_is_said(blobs: FolderBlobs):
    with pytest.raises(NotFoundError, match="no blob"):
        blobs.open("a" * 64)
    assert not blobs.has("a" * 64)


def test_many_writers_of_one_content_leave_one_whole_blob(blobs: FolderBlobs):
    data = os.urandom(1 << 20)
    digests: list[str] = []
    writers = [
        threading.Thread(target=lambda: digests.append(blobs.put_bytes(data, "x").digest)) for _ in range(8)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(set(digests)) == 1
    assert [path.read_bytes() for path in _files(blobs)] == [data]


def test_a_write_that_fails_leaves_nothing(blobs: FolderBlobs, tmp_path: Path):
    class FailingSource(type(tmp_path)):
        def open(self, *args, **kwargs):
            return _Failing()

    with pytest.raises(StoreError, match=r"cannot be written \(.*\); free some space"):
        blobs.put_file(FailingSource(tmp_path / "x"), "x")
    assert list(_files(blobs)) == []
    assert list(blobs.root.iterdir()) == []


@pytest.mark.needs("root")
@pytest.mark.fault
def test_a_full_disk_is_said_and_earlier_blobs_stay(tmp_path: Path):
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=True)
    try:
        blobs = FolderBlobs(folder / "blobs")
        kept = blobs.put_bytes(b"early", "early")
        with pytest.raises(StoreError, match="No space left"):
            blobs.put_bytes(os.urandom(1 << 20), "large")
        assert [path.name for path in _files(blobs)] == [kept.digest]
        assert list(blobs.verify()) == []
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_garbage_is_what_nothing_refers_to_and_nobody_just_put(blobs: FolderBlobs):
    live, old, young = (blobs.put_bytes(text, "x").digest for text in (b"live", b"older", b"young"))
    os.utime(blobs.path(live), (1.0, 1.0))
    os.utime(blobs.path(old), (1.0, 1.0))
    os.utime(blobs.path(young), (9_000.0, 9_000.0))
    found = blobs.collect_garbage({live}, grace_s=3600.0, now=10_000.0)
    assert (found.removed, found.removed_bytes, found.kept, found.kept_bytes) == (1, 5, 2, 9)
    assert [blobs.has(each) for each in (live, old, young)] == [True, False, True]


def test_putting_a_blob_again_keeps_the_collector_away_from_it(blobs: FolderBlobs):
    digest = blobs.put_bytes(b"x", "x").digest
    os.utime(blobs.path(digest), (1.0, 1.0))
    blobs.put_bytes(b"x", "again")
    assert blobs.collect_garbage(set()).removed == 0


def test_abandoned_partial_files_are_collected_and_fresh_ones_are_not(blobs: FolderBlobs):
    blobs.put_bytes(b"x", "x")
    stale, fresh = blobs.root / ".partial-1-a", blobs.root / ".partial-2-b"
    for path in (stale, fresh):
        path.touch()
    os.utime(stale, (1.0, 1.0))
    blobs.collect_garbage(set())
    assert (stale.exists(), fresh.exists()) == (False, True)


def test_removing_spares_what_was_put_within_the_grace(blobs: FolderBlobs):
    old, young = (blobs.put_bytes(text, "x").digest for text in (b"old", b"young"))
    os.utime(blobs.path(old), (1.0, 1.0))
    assert blobs.remove([old, young, "f" * 64], grace_s=600.0) == 1
    assert blobs.remove([young]) == 1
    assert list(_files(blobs)) == []


def test_a_changed_blob_is_named(blobs: FolderBlobs):
    good, bad = (blobs.put_bytes(text, "x").digest for text in (b"good", b"bad"))
    blobs.path(bad).write_bytes(b"worse")
    assert list(blobs.verify()) == [bad]
    assert blobs.has(good)


def test_blobs_can_be_forced_to_disk(tmp_path: Path):
    blobs = FolderBlobs(tmp_path, sync=True)
    path = blobs.path(blobs.put_bytes(b"x", "x").digest)
    assert path.read_bytes() == b"x"
    assert stat.S_ISREG(path.lstat().st_mode)


def test_collecting_where_nothing_was_put_does_nothing(blobs: FolderBlobs):
    assert blobs.collect_garbage(set()).kept == 0
    assert blobs.size_bytes() == 0


class _Failing:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __init__(self) -> None:
        self.asked = 0

    def seek(self, _to: int) -> None:
        pass

    def read(self, size: int) -> bytes:
        self.asked += 1
        if self.asked > 1:
            raise OSError(errno.EIO, "Input/output error")
        return bytes(size)


def _files(blobs: FolderBlobs):
    return (path for path in blobs.root.rglob("*") if path.is_file() and not path.name.startswith("."))

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

from proctor.errors import NotFoundError, StoreError, UsageError
from proctor.store.blobs import FolderBlobs, local_file, open_blobs

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
    assert [each.size_bytes for each in blobs.list()] == [4]
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
    for use in (blobs.open, blobs.path, blobs.has, blobs.remove):
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


def test_abandoned_partial_files_go_and_fresh_ones_stay(blobs: FolderBlobs):
    blobs.put_bytes(b"x", "x")
    stale, fresh = blobs.root / ".partial-1-a", blobs.root / ".partial-2-b"
    for path in (stale, fresh):
        path.touch()
    os.utime(stale, (1.0, 1.0))
    assert len(list(blobs.list())) == 1
    assert (stale.exists(), fresh.exists()) == (False, True)


def test_removing_spares_what_was_put_within_that_time(blobs: FolderBlobs):
    old, young = (blobs.put_bytes(text, "x").digest for text in (b"old", b"young"))
    os.utime(blobs.path(old), (1.0, 1.0))
    assert blobs.remove(old, unless_younger_s=600.0)
    assert not blobs.remove(old), "it is gone"
    assert not blobs.remove(young, unless_younger_s=600.0)
    assert blobs.has(young)
    assert blobs.remove(young)
    assert list(_files(blobs)) == []


def test_a_blob_that_is_put_again_while_it_is_being_removed_stays(blobs: FolderBlobs):
    """Whoever puts it finds the old one and renews its time, or finds nothing and writes it."""
    digest = blobs.put_bytes(b"x", "x").digest
    os.utime(blobs.path(digest), (1.0, 1.0))

    class Beaten(FolderBlobs):
        def path(self, digest: str) -> Path:
            blobs.put_bytes(b"x", "again")
            return super().path(digest)

    assert not Beaten(blobs.root).remove(digest, unless_younger_s=600.0)
    assert blobs.has(digest)

    class Overtaken(FolderBlobs):
        def _now(self) -> float:
            blobs.put_bytes(b"x", "again")
            return super()._now()

    os.utime(blobs.path(digest), (1.0, 1.0))
    assert Overtaken(blobs.root).remove(digest, unless_younger_s=600.0)
    assert blobs.path(digest).read_bytes() == b"x"


def test_ages_are_by_the_clock_of_the_folder(blobs: FolderBlobs, monkeypatch: pytest.MonkeyPatch):
    blobs.put_bytes(b"x", "x")
    monkeypatch.setattr("time.time", lambda: 1e12)
    (found,) = blobs.list()
    assert abs(found.age_s) < 60


@pytest.mark.parametrize("address", ["{folder}", "file://{folder}"])
def test_blobs_are_opened_by_their_address(tmp_path: Path, address: str):
    folder = tmp_path / "some blobs"
    blobs = open_blobs(address.format(folder=str(folder)).replace(" ", "%20" if "://" in address else " "))
    digest = blobs.put_bytes(b"x", "x").digest
    assert FolderBlobs(folder).has(digest)
    assert blobs.where == str(folder)


@pytest.mark.parametrize("address", ["gs://bucket/x", "file://host/x"])
def test_an_address_that_is_no_place_for_blobs_is_refused(address: str):
    with pytest.raises(UsageError, match="not a place for blobs"):
        open_blobs(address)


def test_a_blob_of_another_place_is_copied_to_a_file_once(blobs: FolderBlobs, tmp_path: Path):
    digest = blobs.put_bytes(b"x", "x").digest
    assert local_file(blobs, digest, tmp_path / "scratch") == blobs.path(digest)

    class Elsewhere:
        opened = 0

        def open(self, digest: str):
            self.opened += 1
            return blobs.open(digest)

    elsewhere = Elsewhere()
    for _ in range(2):
        assert local_file(elsewhere, digest, tmp_path / "scratch").read_bytes() == b"x"
    assert elsewhere.opened == 1


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


def test_where_nothing_was_put_there_is_nothing(blobs: FolderBlobs):
    assert list(blobs.list()) == []


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

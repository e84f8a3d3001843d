"""Folders as blobs: the same everywhere, complete or not there, and what they were."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from pathlib import Path

import pytest

from proctor.errors import StoreError
from proctor.store import trees
from proctor.store.blobs import FolderBlobs
from proctor.store.trees import forget_tree, get_tree, put_tree


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    (made / "empty").mkdir(parents=True)
    (made / "file").write_text("text")
    (made / "run").write_text("#!/bin/sh\n")
    (made / "run").chmod(0o700)
    (made / "link").symlink_to("file")
    return made


def members(folder: Path) -> dict[str, Path | bytes]:
    return {each.relative_to(folder).as_posix(): each for each in folder.rglob("*")}


def test_a_folder_comes_back_with_its_links_empty_folders_and_programs(folder, blobs, tmp_path):
    kept = put_tree(blobs, {**members(folder), "more/added": b"bytes"}, "n", tmp_path)
    found = get_tree(blobs, kept.digest, tmp_path / "cache")
    assert (found / "file").read_text() == "text"
    assert (found / "more/added").read_bytes() == b"bytes"
    assert (found / "link").readlink() == Path("file")
    assert (found / "empty").is_dir()
    assert os.access(found / "run", os.X_OK)
    assert not os.access(found / "file", os.X_OK)


def test_pythons_without_filters_unpack_it_too(folder, blobs, tmp_path, monkeypatch):
    """As that of Debian 12: 3.11.2."""
    real = tarfile.TarFile.extractall
    monkeypatch.setattr(
        tarfile.TarFile, "extractall", lambda self, path, members=None: real(self, path, members)
    )
    kept = put_tree(blobs, members(folder), "n", tmp_path)
    assert (get_tree(blobs, kept.digest, tmp_path / "cache") / "file").read_text() == "text"


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "out/escaped", "fifo"])
def test_what_would_be_written_elsewhere_is_refused(name, blobs, tmp_path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        link = tarfile.TarInfo("out")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        tar.addfile(link)
        other = tarfile.TarInfo(name)
        other.type = tarfile.FIFOTYPE if name == "fifo" else tarfile.REGTYPE
        tar.addfile(other)
    kept = blobs.put_bytes(packed.getvalue(), "n", "application/x-tar")
    with pytest.raises(StoreError, match="not a packed folder"):
        get_tree(blobs, kept.digest, tmp_path / "cache")
    assert list(tmp_path.rglob("escaped")) == []


def test_neither_times_nor_owners_nor_permissions_change_the_digest(folder, blobs, tmp_path):
    first = put_tree(blobs, members(folder), "n", tmp_path).digest
    os.utime(folder / "file", (1, 1))
    (folder / "file").chmod(0o600)
    assert put_tree(blobs, dict(reversed(members(folder).items())), "n", tmp_path).digest == first
    (folder / "file").chmod(0o755)
    assert put_tree(blobs, members(folder), "n", tmp_path).digest != first


def test_a_large_folder_is_packed_on_disk_to_the_same_blob(folder, blobs, tmp_path, monkeypatch):
    small = put_tree(blobs, members(folder), "n", tmp_path / "scratch").digest
    monkeypatch.setattr(trees, "_IN_MEMORY_BYTES", 0)
    assert put_tree(blobs, members(folder), "n", tmp_path / "scratch").digest == small
    assert list((tmp_path / "scratch").iterdir()) == []


def test_many_may_unpack_it_at_once(folder, blobs, tmp_path):
    kept = put_tree(blobs, members(folder), "n", tmp_path)
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(get_tree(blobs, kept.digest, tmp_path / "cache")))
        for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert set(found) == {tmp_path / "cache" / kept.digest}
    assert [each.name for each in (tmp_path / "cache").iterdir()] == [kept.digest]


def test_what_a_killed_process_left_is_never_used_and_goes_in_time(folder, blobs, tmp_path):
    kept = put_tree(blobs, members(folder), "n", tmp_path)
    cache = tmp_path / "cache"
    old, young = cache / ".partial-old", cache / ".partial-young"
    for each in (old, young):
        (each / "half").mkdir(parents=True)
    os.utime(old, (1, 1))
    assert (get_tree(blobs, kept.digest, cache) / "file").is_file()
    assert not old.exists()
    assert young.exists()


def test_a_blob_that_is_no_longer_what_it_was_is_refused(folder, blobs, tmp_path):
    kept = put_tree(blobs, members(folder), "n", tmp_path)
    place = blobs.path(kept.digest)
    for damaged in (place.read_bytes().replace(b"text", b"tent"), b"nothing of the kind" * 99):
        place.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"no longer what it was|not a packed folder"):
            get_tree(blobs, kept.digest, tmp_path / "cache")
        assert list((tmp_path / "cache").iterdir()) == []


def test_what_was_unpacked_can_be_forgotten(folder, blobs, tmp_path):
    kept = put_tree(blobs, members(folder), "n", tmp_path)
    (get_tree(blobs, kept.digest, tmp_path / "cache") / "file").write_text("changed")
    forget_tree(kept.digest, tmp_path / "cache")
    assert (get_tree(blobs, kept.digest, tmp_path / "cache") / "file").read_text() == "text"


def test_a_cache_that_cannot_be_written_is_said(folder, blobs, tmp_path):
    kept = put_tree(blobs, members(folder), "n", tmp_path)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / kept.digest).write_text("a file in the way")
    with pytest.raises(StoreError, match="check who owns"):
        get_tree(blobs, kept.digest, tmp_path / "cache")

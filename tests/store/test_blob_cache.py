from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from proctor.errors import StoreError
from proctor.store.blob_cache import BlobCache


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def add(cache: BlobCache, data: bytes) -> str:
    cache.keep_bytes(data, digest_of(data))
    return digest_of(data)


def held(cache: BlobCache) -> set[str]:
    return {path.name for path in cache.folder.glob("??/*")}


def test_what_is_kept_is_read_by_any_process(tmp_path: Path):
    digest = add(BlobCache(tmp_path, 1000), b"x")
    with BlobCache(tmp_path, 1000).open(digest) as file:
        assert file.read() == b"x"
    assert BlobCache(tmp_path, 1000).open(digest_of(b"y")) is None


def test_the_least_recently_used_go_when_it_is_full(tmp_path: Path):
    cache = BlobCache(tmp_path, 1000)
    old, used, young = (add(cache, bytes([number]) * 300) for number in range(3))
    for age_s, digest in ((3000, old), (2000, used), (1000, young)):
        moment = time.time() - age_s
        os.utime(cache._path(digest), (moment, moment))
    with cache.open(used) as reading:
        cache.open(old).close()
        add(cache, b"z" * 200)
        assert young not in held(cache)
        assert {old, used} <= held(cache)
        assert reading.read() == bytes([1]) * 300
    assert sum(path.stat().st_size for path in cache.folder.glob("??/*")) <= 1000


def test_who_reads_what_goes_reads_on(tmp_path: Path):
    cache = BlobCache(tmp_path, 1000)
    digest = add(cache, b"a" * 900)
    with cache.open(digest) as reading:
        add(cache, b"b" * 900)
        assert digest not in held(cache)
        assert reading.read() == b"a" * 900


def test_a_copy_that_was_changed_is_noticed_also_by_who_has_read_it_before(tmp_path: Path, caplog):
    cache = BlobCache(tmp_path, 1000)
    digest = add(cache, b"right")
    cache.open(digest).close()
    cache._path(digest).write_bytes(b"wrong")
    assert cache.open(digest) is None
    assert held(cache) == set()
    assert "was changed" in caplog.text


def test_content_is_hashed_once_by_each_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    digest = add(BlobCache(tmp_path, 1000), b"x")
    other = BlobCache(tmp_path, 1000)
    hashed: list[int] = []
    real = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *args: hashed.append(1) or real(*args))
    for _ in range(3):
        other.open(digest).close()
    assert hashed == [1]


def test_what_is_too_large_or_not_wanted_is_not_kept(tmp_path: Path):
    assert held(BlobCache(tmp_path / "a", 10)) == set()
    cache = BlobCache(tmp_path / "a", 10)
    add(cache, b"x" * 11)
    none = BlobCache()
    add(none, b"x")
    assert none.open(digest_of(b"x")) is None
    assert held(cache) == set()


def test_what_a_killed_process_left_goes(tmp_path: Path):
    cache = BlobCache(tmp_path, 1000)
    left = tmp_path / ".partial-1-x"
    left.write_bytes(b"x")
    os.utime(left, (1, 1))
    add(cache, b"y")
    assert not left.exists()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written here"):
        add(BlobCache(tmp_path / "file" / "x", 1000), b"x")

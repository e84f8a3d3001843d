from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor.errors import NotFoundError, StoreError
from proctor.store.blobs import blobs_of, local_file
from proctor.store.garbage import collect_garbage
from proctor.store.s3 import blobs as module
from proctor.store.s3.blobs import FRESH_S, S3Blobs
from proctor.store.s3.bucket import PIECE_BYTES

DAY_S = 86_400.0


def later(blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    """Let the store's clock go on: what is there now is that much older."""
    real = S3Blobs._now
    monkeypatch.setattr(S3Blobs, "_now", lambda self: real(self) + by_s)


def keys(blobs: S3Blobs) -> list[str]:
    return [each.key for each in blobs.bucket.list()]


def test_bytes_come_back_under_their_digest_from_any_machine(opened):
    kept = opened().put_bytes(b"hello", "x.txt", "text/plain")
    other = opened("another")
    assert kept.digest == hashlib.sha256(b"hello").hexdigest()
    assert other.has(kept.digest)
    with other.open(kept.digest) as file:
        assert file.read() == b"hello"
    assert [each.digest for each in other.list()] == [kept.digest]
    assert [each.size_bytes for each in other.list()] == [5]


def test_an_empty_blob_is_a_blob(opened):
    digest = opened().put_bytes(b"", "empty").digest
    with opened("another").open(digest) as file:
        assert file.read() == b""


def test_the_same_content_is_kept_once(blobs: S3Blobs, tmp_path: Path):
    (tmp_path / "x").write_bytes(b"same")
    blobs.put_bytes(b"same", "a")
    blobs.put_file(tmp_path / "x", "b")
    assert len(keys(blobs)) == 1


def test_a_large_file_is_written_and_read_in_pieces(opened, tmp_path: Path):
    path = tmp_path / "large"
    path.write_bytes(os.urandom(2 * PIECE_BYTES + 1234))
    kept = opened().put_file(path, "large")
    with opened("another").open(kept.digest) as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == kept.digest
    copy = local_file(opened("a third"), kept.digest, tmp_path / "scratch")
    assert copy.read_bytes() == path.read_bytes()


def test_a_part_of_a_large_blob_is_fetched_alone(opened, tmp_path: Path):
    path = tmp_path / "large"
    path.write_bytes(os.urandom(2 * PIECE_BYTES))
    digest = opened().put_file(path, "large").digest
    other = opened("another")
    fetched: list[int] = []
    real = other.bucket.fetch
    other.bucket.fetch = lambda key, at, length: fetched.append(length) or real(key, at, length)  # type: ignore[method-assign]
    with other.open(digest, parts=True) as file:
        file.seek(-100, os.SEEK_END)
        assert file.read() == path.read_bytes()[-100:]
        file.seek(PIECE_BYTES + 7)
        assert file.read(10) == path.read_bytes()[PIECE_BYTES + 7 : PIECE_BYTES + 17]
    assert sum(fetched) < 1 << 20


def test_what_is_no_digest_or_not_there_is_said(blobs: S3Blobs):
    for act in (blobs.open, blobs.has, blobs.remove):
        with pytest.raises(NotFoundError, match="not the digest"):
            act("../../etc/passwd")
    with pytest.raises(NotFoundError, match=f"no blob {'0' * 64} in s3://"):
        blobs.open("0" * 64)
    assert not blobs.has("0" * 64, keep=True)
    assert not blobs.remove("0" * 64)


def test_a_damaged_object_is_an_error_that_names_it_and_is_not_cached(opened):
    digest = opened().put_bytes(b"right", "x").digest
    other = opened("another")
    (key,) = keys(other)
    other.bucket.put(key, b"wrong")
    for _ in range(2):
        with pytest.raises(StoreError, match=f"blob {digest} is damaged: the object .*{key}"):
            other.open(digest)
    assert not [path for path in other.cache.folder.rglob("*") if path.is_file()]


def test_a_sound_copy_stands_in_for_a_damaged_one(opened, monkeypatch: pytest.MonkeyPatch):
    first = opened()
    digest = first.put_bytes(b"right", "x").digest
    later(first, monkeypatch, DAY_S)
    assert first.has(digest, keep=True)
    other = opened("another")
    assert len(keys(other)) == 2
    other.bucket.put(keys(other)[0], b"wrong")
    with other.open(digest) as file:
        assert file.read() == b"right"


def test_a_renewed_blob_counts_as_just_put_and_one_that_is_young_costs_no_copy(
    blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch
):
    digest = blobs.put_bytes(b"x", "x").digest
    assert blobs.has(digest, keep=True)
    assert len(keys(blobs)) == 1
    later(blobs, monkeypatch, DAY_S)
    assert next(iter(blobs.list())).age_s >= DAY_S - 1
    blobs.put_bytes(b"x", "x")
    assert len(keys(blobs)) == 2


def test_removing_spares_what_was_put_within_that_time(blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch):
    digest = blobs.put_bytes(b"x", "x").digest
    assert not blobs.remove(digest, unless_younger_s=3600)
    later(blobs, monkeypatch, 3600 + FRESH_S + 5)
    assert blobs.remove(digest, unless_younger_s=3600)
    assert not blobs.has(digest)
    with pytest.raises(NotFoundError):
        blobs.open(digest)


def test_copies_that_were_replaced_long_ago_go_and_one_stays(blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch):
    digest = blobs.put_bytes(b"x", "x").digest
    blobs.bucket.copy(keys(blobs)[0], module._new_key(digest))
    assert [each.size_bytes for each in blobs.list()] == [2]
    later(blobs, monkeypatch, DAY_S)
    assert [each.size_bytes for each in blobs.list()] == [1]
    assert len(keys(blobs)) == 1


def test_a_collector_never_removes_what_a_writer_elsewhere_has_just_put_again(
    opened, monkeypatch: pytest.MonkeyPatch
):
    """The writer comes at the worst moment: after the collector looked, before it removes."""

    class Nobody:
        shared_layers = SimpleNamespace(prune=lambda: 0)

        def live_blobs(self) -> set[str]:
            return set()

    collector, writer = opened(), opened("another")
    digest = writer.put_bytes(b"needed again", "x").digest
    removed: list[str] = []
    real = collector.bucket.remove

    def overtaken(key: str) -> None:
        if digest in key and not removed:
            # Copied inside the store: the old copy is still there at this moment.
            assert writer.has(digest, keep=True)
            removed.append(key)
        real(key)

    monkeypatch.setattr(collector.bucket, "remove", overtaken)
    later(collector, monkeypatch, DAY_S)
    collect_garbage(Nobody(), collector)  # type: ignore[arg-type]
    assert removed
    assert writer.has(digest)
    with opened("a third").open(digest) as file:
        assert file.read() == b"needed again"


def test_writers_and_a_collector_at_once_lose_nothing(opened, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "FRESH_S", -1.0)
    wrong: list[str] = []
    ended = threading.Event()

    def write(number: int) -> None:
        own = opened(f"w{number}", most_bytes=0)
        for _ in range(15):
            digest = own.put_bytes(b"contested", "x").digest
            if not own.has(digest):
                wrong.append(digest)

    def collect() -> None:
        own = opened("c", most_bytes=0)
        digest = hashlib.sha256(b"contested").hexdigest()
        while not ended.is_set():
            # As a collector that took its time: it removes what it saw before.
            seen = own._copies(digest)
            young = {each.key for each in seen[:1]} if seen else set()
            for each in seen:
                if each.key not in young:
                    own.bucket.remove(each.key)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    other = threading.Thread(target=collect)
    for each in (*writers, other):
        each.start()
    for each in writers:
        each.join()
    ended.set()
    other.join()
    assert not wrong


def test_ages_are_by_the_clock_of_the_store(blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch):
    blobs.put_bytes(b"x", "x")
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert all(-5 < each.age_s < 60 for each in blobs.list())


def test_what_is_listed_includes_more_than_a_page(blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch):
    from proctor.store.s3 import bucket

    monkeypatch.setattr(bucket, "_PAGE", 3)
    digests = {blobs.put_bytes(str(number).encode(), "x").digest for number in range(8)}
    assert {each.digest for each in blobs.list()} == digests


def test_objects_are_encrypted_as_the_address_says(opened, s3):
    import boto3

    key = "arn:aws:kms:us-east-1:123456789012:key/k"
    blobs = opened(options=f"&sse=aws:kms&kms_key={key}")
    blobs.put_bytes(b"x", "x")
    place = blobs.bucket.place
    client = boto3.client("s3", endpoint_url=place.endpoint, region_name="us-east-1")
    about = client.head_object(Bucket=place.bucket, Key=f"{place.prefix}/{keys(blobs)[0]}")
    assert (about["ServerSideEncryption"], about["SSEKMSKeyId"]) == ("aws:kms", key)
    client.close()


def test_the_settings_give_blobs_with_a_cache(url: str, tmp_path: Path):
    from proctor.settings import Settings

    blobs = blobs_of(Settings(home=tmp_path, blobs=url, blob_cache_bytes=1000))
    assert isinstance(blobs, S3Blobs)
    digest = blobs.put_bytes(b"x", "x").digest
    assert (tmp_path / "cache/blobs" / digest[:2] / digest).read_bytes() == b"x"


def test_a_store_that_lists_late_what_was_written_has_a_clock_all_the_same(
    blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch
):
    listed = blobs.bucket.list
    monkeypatch.setattr(
        blobs.bucket, "list", lambda prefix="": listed(prefix) if prefix != "clock" else iter(())
    )
    digest = blobs.put_bytes(b"one", "one").digest
    assert blobs.has(digest, keep=True)

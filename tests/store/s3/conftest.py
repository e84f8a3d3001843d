"""An S3 server for all of these tests, and a bucket's folder of its own for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.s3 import s3_server

from proctor.store.blob_cache import BlobCache
from proctor.store.s3.address import parse
from proctor.store.s3.blobs import S3Blobs
from proctor.store.s3.bucket import Bucket


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    with s3_server(tmp_path_factory.mktemp("s3")) as found:
        yield found


@pytest.fixture
def url(s3: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> str:
    address, environ = s3
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return address.replace("/blobs?", f"/{os.urandom(6).hex()}?")


@pytest.fixture
def opened(url: str, tmp_path: Path) -> Callable[..., S3Blobs]:
    """The blobs as another process sees them: with a cache of its own, unless told."""

    def make(folder: str = "cache", most_bytes: int = 10**9, options: str = "") -> S3Blobs:
        return S3Blobs(Bucket(parse(url + options)), BlobCache(tmp_path / folder, most_bytes))

    return make


@pytest.fixture
def blobs(opened: Callable[..., S3Blobs]) -> S3Blobs:
    return opened()

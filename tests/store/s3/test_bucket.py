from __future__ import annotations

import logging
import os
import socket
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.s3 import s3_server

from proctor.errors import StoreError
from proctor.store.s3.address import parse
from proctor.store.s3.blobs import S3Blobs
from proctor.store.s3.bucket import Bucket


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_callers_wait_for_a_store_that_is_away_and_say_so(url, tmp_path: Path, caplog):
    """The server starts only after the writers began: nothing is lost, and they say what they wait for."""
    port = free_port()
    away = f"s3://proctor-tests/blobs?endpoint={quote(f'http://127.0.0.1:{port}')}&region=us-east-1"
    digests: list[str] = []

    def write(number: int) -> None:
        digests.append(S3Blobs(Bucket(parse(away))).put_bytes(str(number).encode(), "x").digest)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    with caplog.at_level(logging.WARNING, "proctor.store"):
        for each in writers:
            each.start()
        deadline = time.monotonic() + 60
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.02)
        with s3_server(tmp_path / "late", port=port):
            for each in writers:
                each.join(60)
            blobs = S3Blobs(Bucket(parse(away)))
            assert len(digests) == 3
            assert all(blobs.has(digest) for digest in digests)
    assert "s3://proctor-tests/blobs does not answer" in caplog.text
    assert "waiting up to 120 s to" in caplog.text


def test_after_the_stated_time_the_error_says_what_and_where(url):
    away = f"s3://proctor-tests/blobs?endpoint={quote(f'http://127.0.0.1:{free_port()}')}&wait_s=0.5"
    with pytest.raises(StoreError, match=r"s3://proctor-tests/blobs: cannot .* has not answered for .* s"):
        S3Blobs(Bucket(parse(away))).put_bytes(b"x", "x")


def test_what_the_store_refuses_is_not_tried_again(url):
    blobs = S3Blobs(Bucket(parse(url.replace("proctor-tests", "no-such-bucket"))))
    with pytest.raises(StoreError, match="404|no such bucket"):
        blobs.put_bytes(b"x", "x")


def test_no_error_repeats_a_credential(url, caplog):
    away = f"s3://proctor-tests/blobs?endpoint={quote(f'http://127.0.0.1:{free_port()}')}&wait_s=0.5"
    with pytest.raises(StoreError) as caught:
        S3Blobs(Bucket(parse(away))).put_bytes(b"x", "x")
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in f"{caught.value}{caplog.text}"
    assert os.environ["AWS_ACCESS_KEY_ID"] not in f"{caught.value}{caplog.text}"


def test_a_forked_child_is_told_and_does_not_hang(blobs: S3Blobs):
    digest = blobs.put_bytes(b"x", "x").digest
    child = os.fork()
    if not child:
        code = 1
        try:
            blobs.has(digest)
        except StoreError as error:
            code = 0 if "forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert blobs.has(digest)

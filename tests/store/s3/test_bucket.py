from __future__ import annotations

import logging
import os
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import quote, urlsplit

import pytest

from proctor.errors import StoreError
from proctor.store.s3.address import Place, parse
from proctor.store.s3.blobs import S3Blobs
from proctor.store.s3.bucket import Bucket


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def way_to(url: str, port: int, *, without: bytes = b"") -> Iterator[None]:
    """A port from which connections are led on to the server, while the block lasts.

    `without`: the beginning of a header that the server does not see.
    """
    target = urlsplit(parse(url).endpoint)

    class Lead(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((target.hostname, target.port)) as server:
                back = threading.Thread(target=_pour, args=(server, self.request))
                back.start()
                _pour(self.request, server, without)
                back.join()

    class Way(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        block_on_close = False

    with Way(("127.0.0.1", port), Lead) as way:
        serving = threading.Thread(target=way.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield
        finally:
            way.shutdown()
            serving.join()


def _pour(source: socket.socket, target: socket.socket, without: bytes = b"") -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece.replace(without, b"x-" + without) if without else piece)
        target.shutdown(socket.SHUT_WR)


def test_callers_wait_for_a_store_that_is_away_and_say_so(url: str, caplog):
    """The way to the server opens only after the writers began: nothing is lost, and they say so."""
    port = free_port()
    away = url.replace(quote(parse(url).endpoint, safe=""), quote(f"http://127.0.0.1:{port}", safe=""))
    digests: list[str] = []

    def write(number: int) -> None:
        digests.append(S3Blobs(Bucket(parse(away))).put_bytes(str(number).encode(), "x").digest)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    with caplog.at_level(logging.WARNING, "proctor.store"):
        for each in writers:
            each.start()
        deadline = time.monotonic() + 60
        while len(caplog.records) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not digests
        with way_to(url, port):
            for each in writers:
                each.join(60)
            blobs = S3Blobs(Bucket(parse(url)))
            assert len(digests) == 3
            assert all(blobs.has(digest) for digest in digests)
    assert f"{parse(url).where} does not answer" in caplog.text
    assert "waiting up to 120 s to" in caplog.text


def test_after_the_stated_time_the_error_says_what_and_where(url):
    away = f"s3://proctor-tests/blobs?endpoint={quote(f'http://127.0.0.1:{free_port()}')}&wait_s=0.5"
    with pytest.raises(StoreError, match=r"s3://proctor-tests/blobs: cannot .* has not answered for .* s"):
        S3Blobs(Bucket(parse(away))).put_bytes(b"x", "x")


def test_what_the_store_refuses_is_not_tried_again(url):
    blobs = S3Blobs(Bucket(parse(url.replace("proctor-tests", "no-such-bucket"))))
    with pytest.raises(StoreError, match=r"404|no such bucket"):
        blobs.put_bytes(b"x", "x")


def test_an_endpoint_without_tls_is_said_at_once(url):
    plain = url.replace("http%3A", "https%3A")
    with pytest.raises(StoreError, match="does not speak TLS there"):
        S3Blobs(Bucket(parse(plain))).put_bytes(b"x", "x")


def test_a_certificate_that_is_not_trusted_is_said_at_once(url, with_tls):
    del url  # its credentials are set
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = with_tls[1].wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        place = Place("bucket", endpoint=f"https://localhost:{server.server_port}", region="us-east-1")
        try:
            with pytest.raises(StoreError, match=r"certificate is not trusted .*PROCTOR_CA_BUNDLE"):
                S3Blobs(Bucket(place)).put_bytes(b"x", "x")
        finally:
            server.shutdown()
            serving.join()


def test_a_clock_that_is_wrong_is_said(url):
    del url  # its credentials are set

    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(403)
            self.end_headers()
            self.wfile.write(b"<Error><Code>RequestTimeTooSkewed</Code></Error>")

        def log_message(self, *_: object) -> None:
            """Tests say nothing."""

    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.handle_request).start()
        place = Place("bucket", endpoint=f"http://127.0.0.1:{server.server_port}", region="us-east-1")
        with pytest.raises(StoreError, match=r"403 RequestTimeTooSkewed; this machine's clock is wrong"):
            S3Blobs(Bucket(place)).put_bytes(b"x", "x")


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


def test_a_store_that_answers_whole_to_who_asks_for_all_of_an_object_is_read(url, opened):
    blob = opened().put_bytes(b"one", "one.txt")
    port = free_port()
    with way_to(url, port, without=b"range: bytes=0-2\r\n"):
        endpoint = quote(f"http://127.0.0.1:{port}", safe="")
        bucket = Bucket(parse(f"{url.partition('?')[0]}?endpoint={endpoint}&region=us-east-1&wait_s=0"))
        with S3Blobs(bucket).open(blob.digest) as file:
            assert file.read() == b"one"

"""An S3 server of one's own, in a process of its own on a free port, with an empty bucket."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

START_DEADLINE_S = 60.0
BUCKET = "proctor-tests"
_SERVER = """
import ctypes, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
from werkzeug.serving import make_server
from moto.server import DomainDispatcherApplication, create_backend_app
server = make_server(
    "127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=True
)
print(server.server_port, flush=True)
server.serve_forever()
"""
"""Ends with the process that started it. Its port is its own choice, unless one is given."""


@contextmanager
def s3_server(folder: Path, *, port: int = 0) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of empty blobs, and the variables with which they are reached, while the block lasts."""
    environ = {
        "AWS_ACCESS_KEY_ID": "test-key",
        "AWS_SECRET_ACCESS_KEY": "test-secret-9f3b",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "s3.log"
    with log.open("wb") as written:
        server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(port)],
            stdout=subprocess.PIPE, stderr=written, env=os.environ | environ, cwd=folder,
        )  # fmt: skip
    try:
        assert server.stdout
        line = server.stdout.readline().strip()
        if not line:
            pytest.fail(f"the S3 server did not start:\n{log.read_text()}")
        endpoint = f"http://127.0.0.1:{int(line)}"
        _make_bucket(endpoint)
        yield f"s3://{BUCKET}/blobs?endpoint={quote(endpoint, safe='')}&region=us-east-1", environ
    finally:
        server.kill()
        server.wait()
        if server.stdout:
            server.stdout.close()


def _make_bucket(endpoint: str) -> None:
    scope = "test-key/20260101/us-east-1/s3/aws4_request"
    signed = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
    request = Request(f"{endpoint}/{BUCKET}", method="PUT", headers={"Authorization": signed})
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            with urlopen(request, timeout=30):
                return
        except URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)

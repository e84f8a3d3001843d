"""A real registry on loopback, a client that pushes to it, and a proxy in front that misbehaves on demand."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import zstandard
from tests.sandbox.image.archives import ARCH, config

OCI = "application/vnd.oci.image."
DOCKER = "application/vnd.docker."
PACK = {
    "gzip": (partial(gzip.compress, compresslevel=6), f"{OCI}layer.v1.tar+gzip"),
    "docker-gzip": (partial(gzip.compress, compresslevel=6), f"{DOCKER}image.rootfs.diff.tar.gzip"),
    "zstd": (lambda data: zstandard.ZstdCompressor().compress(data), f"{OCI}layer.v1.tar+zstd"),
    "plain": (bytes, f"{OCI}layer.v1.tar"),
}
PASSWORD = "s3cret-word"
HTPASSWD = "someone:$2y$05$abcdefghijklmnopqrstuuEpHRRKIlpAGo.iP7Bpa.htQEJMAAnRe\n"
"""The same password, as bcrypt writes it."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def registry(folder: Path, extra: str = "") -> Iterator[str]:
    """Debian's registry server, with a folder of its own; its `host:port`."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.yml"
    file.write_text(
        f"version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder / 'data'}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}', secret: x}}\n{extra}"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(file)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def request(
    host: str, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@dataclass(frozen=True, kw_only=True)
class Pusher:
    """Puts images into a registry, as `docker push` would."""

    host: str
    headers: dict[str, str] = field(default_factory=dict)

    def blob(self, repository: str, data: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        status, said, body = request(self.host, "POST", f"/v2/{repository}/blobs/uploads/", b"", self.headers)
        assert status == 202, (status, body)
        place = urlsplit(said["location"])
        more = {"Content-Type": "application/octet-stream", **self.headers}
        status, _, body = request(self.host, "PUT", f"{place.path}?{place.query}&digest={digest}", data, more)
        assert status == 201, (status, body)
        return {"digest": digest, "size": len(data)}

    def manifest(self, repository: str, tag: str, value: dict[str, Any]) -> dict[str, Any]:
        data = json.dumps(value).encode()
        headers = {"Content-Type": value["mediaType"], **self.headers}
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        status, _, body = request(
            self.host, "PUT", f"/v2/{repository}/manifests/{tag or digest}", data, headers
        )
        assert status == 201, (status, body)
        return {"digest": digest, "size": len(data), "mediaType": value["mediaType"]}

    def image(
        self,
        repository: str,
        tag: str,
        layers: list[bytes],
        *,
        kind: str = "gzip",
        pack: Callable[[bytes], bytes] | None = None,
        packed: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = list,
        **more: Any,
    ) -> dict[str, Any]:
        """An image of these layers; its manifest's descriptor. `packed` may change the layers' entries."""
        usual, media = PACK[kind]
        pack = pack or usual
        entries = [{"mediaType": media, **self.blob(repository, pack(each))} for each in layers]
        made = {"mediaType": f"{OCI}config.v1+json", **self.blob(repository, config(layers, **more))}
        value = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}manifest.v1+json",
            "config": made,
            "layers": packed(entries),
        }
        if kind.startswith("docker"):
            value["mediaType"] = f"{DOCKER}distribution.manifest.v2+json"
            made["mediaType"] = f"{DOCKER}container.image.v1+json"
        return self.manifest(repository, tag, value)

    def index(self, repository: str, tag: str, entries: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """An index of images by platform (`os/architecture/variant`)."""
        listed = [
            {**entry, "platform": dict(zip(("os", "architecture", "variant"), name.split("/"), strict=False))}
            for name, entry in entries.items()
        ]
        value = {"schemaVersion": 2, "mediaType": f"{OCI}index.v1+json", "manifests": listed}
        return self.manifest(repository, tag, value)


HERE = f"linux/{ARCH}"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One request that came through the proxy."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass(kw_only=True)
class Answer:
    """What the proxy is about to send; a rule may change it."""

    status: int
    headers: dict[str, str]
    body: bytes
    send: int | None = None
    """Cut the connection after so many bytes of the body."""
    then: threading.Event | None = None
    """Wait for this before the rest of the body is sent."""


Rule = Callable[[Seen, Answer], None]


class Proxy:
    """Passes requests on to a registry, remembers them, and lets a rule change the answers."""

    def __init__(
        self,
        target: str,
        rule: Rule = lambda _seen, _answer: None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.target = target
        self.rule = rule
        self.seen: list[Seen] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                owner._handle(self)

            def do_POST(self) -> None:
                owner._handle(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def blobs(self) -> list[str]:
        """Digests that were asked for, one for each request."""
        found = [re.search(r"/blobs/(sha256:\w+)", each.path) for each in self.seen]
        return [match[1] for match in found if match]

    def paths(self, part: str) -> list[Seen]:
        return [each for each in self.seen if part in each.path]

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        given = handler.rfile.read(length)
        headers = {key.lower(): value for key, value in handler.headers.items()}
        seen = Seen(method=handler.command, path=handler.path, headers=headers)
        self.seen.append(seen)
        if self.target:
            passed = {key: value for key, value in headers.items() if key not in {"host", "connection"}}
            status, said, body = request(self.target, handler.command, handler.path, given, passed)
        else:
            status, said, body = 404, {}, given
        answer = Answer(status=status, headers=said, body=body)
        answer.headers.pop("transfer-encoding", None)
        answer.headers["content-length"] = str(len(body))
        self.rule(seen, answer)
        self._send(handler, answer)

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        if answer.send is None and not answer.then:
            answer.headers["content-length"] = str(len(answer.body))
        handler.send_response_only(answer.status)
        for key, value in answer.headers.items():
            handler.send_header(key, value)
        handler.end_headers()
        try:
            first = len(answer.body) if answer.send is None else answer.send
            handler.wfile.write(answer.body[:first])
            handler.wfile.flush()
            if answer.then:
                answer.then.wait(60)
                handler.wfile.write(answer.body[first:])
            elif answer.send is not None:
                handler.close_connection = True
                handler.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            handler.close_connection = True

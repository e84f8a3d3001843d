"""Serve the application over HTTP until a signal says stop."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from proctor.errors import UsageError
from proctor.server.auth.guard import LOOPBACK
from proctor.server.logs import log_lines

STOP_S = 3
"""How long open requests may go on after a signal. The engine ends meanwhile, so a stop takes under 5 s."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str = "127.0.0.1"
    port: int = 8640

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in LOOPBACK or self.host.startswith("127.")

    def listen(self) -> socket.socket:
        """The socket, bound; UsageError when somebody has the port."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it. Without, the body of an answer waits 40 ms for the receipt of its head.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            bound.bind((self.host, self.port))
        except OSError as error:
            bound.close()
            raise UsageError(
                f"{self.host}:{self.port} cannot be used: {error.strerror or error}; choose another --port"
            ) from error
        return bound


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files of a TLS certificate."""

    file: Path
    key: Path

    def check(self) -> None:
        """UsageError when they cannot be used."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.file, self.key)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"{self.file}, {self.key}: not a certificate and its key: {error}") from error


def serve(
    app: FastAPI,
    bound: socket.socket,
    *,
    ready: Callable[[str], None],
    certificate: Certificate | None = None,
) -> None:
    """Answer requests until SIGTERM or SIGINT; `ready` is told the address."""
    log_lines()
    with bound:
        asyncio.run(http_server(app, bound, ready=ready, certificate=certificate).serve(sockets=[bound]))


def http_server(
    app: FastAPI,
    bound: socket.socket,
    *,
    ready: Callable[[str], None],
    certificate: Certificate | None = None,
) -> HttpServer:
    """The server of an application; `should_exit` ends it."""
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,  # as all else: `log_lines`
        log_level="warning",
        access_log=False,  # addresses may hold what no log should have
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
        ssl_certfile=certificate.file if certificate else None,
        ssl_keyfile=certificate.key if certificate else None,
    )
    host, port = bound.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    scheme = "https" if certificate else "http"
    return HttpServer(config, app, lambda: ready(f"{scheme}://{name}:{port}"))


class HttpServer(uvicorn.Server):
    """Says when it answers; told to stop, it ends streams and the engine while requests are finished."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear them, and end with exit code 0: that is how a service is told to stop."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        heard = (signal.SIGTERM, signal.SIGINT)
        for each in heard:
            loop.add_signal_handler(each, self.handle_exit, each, None)
        try:
            yield
        finally:
            for each in heard:
                loop.remove_signal_handler(each)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        if self.started:
            self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is asked, for a while."""
        state = self._app.state.proctor
        state.stopping.set()
        ending = asyncio.create_task(state.engine.stop()) if state.engine else None
        await super().shutdown(sockets)
        if ending:
            await ending

"""Servers that a test may treat roughly: stopped, killed, cut off and wiped, each back at its old address.

`tests/postgres.py`, `tests/brokers.py` and `tests/s3.py` start servers that are left in peace; benchmarks use
both kinds.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from tests.brokers import free_port
from tests.postgres import _postgres_binaries

DEADLINE_S = 60.0
HARD = ("fsync=off", "full_page_writes=off", "listen_addresses=", "max_connections=100")
"""What a killed server had committed is with the kernel: nothing is lost, and no test waits for a disk."""


class Postgres:
    """A PostgreSQL server on a unix socket, in a folder of its own."""

    def __init__(self, options: tuple[str, ...] = HARD) -> None:
        # Not below the folder of this session: another account must get there.
        self.folder = Path(tempfile.mkdtemp(prefix="proctor-pg-", dir="/tmp"))
        self._as_user = ["setpriv", "--pdeathsig", "INT"]
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
            self._as_user += ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        self._options = [part for each in options for part in ("-c", each)]
        initdb = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        made = [*self._as_user, _postgres_binaries() / "initdb", "-D", self.folder / "data", *initdb]
        subprocess.run(made, check=True, capture_output=True, cwd=self.folder)
        self.process = self._started()

    def address(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self.folder))}"

    def _started(self) -> subprocess.Popen[bytes]:
        import psycopg

        options = [*self._options, "-c", f"unix_socket_directories={self.folder}"]
        program = [_postgres_binaries() / "postgres", "-D", self.folder / "data", *options]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen([*self._as_user, *program], stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                psycopg.connect(self.address()).close()
            except psycopg.OperationalError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError((self.folder / "log").read_text()[-4000:]) from None
                time.sleep(0.05)
            else:
                return process

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """SIGQUIT: as if it had crashed; SIGINT: connections are ended, and all is in order."""
        self.process.send_signal(how)
        self.process.wait(DEADLINE_S)

    def start(self) -> None:
        self.process = self._started()

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGINT)
        shutil.rmtree(self.folder, ignore_errors=True)


class Redis:
    """A Redis server that keeps nothing: a restart is the loss of all messages."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", self.folder]
        with (self.folder / "redis.log").open("ab") as log:
            process = subprocess.Popen(
                ["redis-server", "--port", str(self.port), *options], stdout=log, stderr=log
            )
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert process.poll() is None, (self.folder / "redis.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                return process

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def start(self) -> None:
        self.process = self._started()

    def wipe(self) -> None:
        subprocess.run(["redis-cli", "-u", self.url, "FLUSHALL"], check=True, capture_output=True)

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop()


class Proxy:
    """Copies bytes between a port of its own and a server, until it is cut."""

    def __init__(self, port: int) -> None:
        """`port`: of the server, on loopback; it may be changed later."""
        self.to_port = port
        self.port = free_port()
        self._whole = True
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """End every connection; new ones end at once."""
        self._whole = False
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        self._whole = True

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(DEADLINE_S)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.to_port)) if self._whole else None
            except OSError:
                server = None
            if server is None:
                client.close()
                continue
            self._open |= {client, server}
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        source.close()


@contextmanager
def postgres(options: tuple[str, ...] = HARD) -> Iterator[Postgres]:
    """A server while the block lasts."""
    made = Postgres(options)
    try:
        yield made
    finally:
        made.close()

"""A Redis server of one's own: on a free port of the loopback, in a temporary folder, gone when stopped."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress

from proctor.experiments.redis.protocol import Connection, RedisError
from proctor.prctl import die_with_parent
from proctor.processes import host_environment

_START_S = 20.0
MISSING = (
    "redis-server is not installed; install it (Debian: apt install redis-server), "
    "or name a running server with the parameter 'address'"
)


class Server:
    """Started by `start`; keeps nothing on disk."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""
        self.port = 0

    def start(self) -> Connection:
        """A connection to the new server; RuntimeError when there is no program or it does not come up."""
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError(MISSING)
        self._folder = tempfile.mkdtemp(prefix="proctor-redis-")
        self.port = _free_port()
        # The loopback is open to everybody on the machine. The password goes by stdin: arguments are public.
        password = secrets.token_hex(16)
        self._process = subprocess.Popen(
            [program, "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env=host_environment(),
            preexec_fn=die_with_parent,  # noqa: PLW1509 - measured processes have one thread
        )
        self._configure(self._process, password)
        return self._connected(password)

    def stop(self) -> None:
        """End the server and remove its folder."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _configure(self, process: subprocess.Popen[bytes], password: str) -> None:
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            'save ""',
            "appendonly no",
            f'dir "{self._folder}"',
            f"requirepass {password}",
        ]
        assert process.stdin is not None
        # A server that ended already is noticed when it does not answer.
        with suppress(BrokenPipeError):
            process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            process.stdin.flush()
        with suppress(BrokenPipeError):
            process.stdin.close()

    def _connected(self, password: str) -> Connection:
        assert self._process is not None
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                connection = Connection("127.0.0.1", self.port)
            except OSError:
                time.sleep(0.01)
                continue
            try:
                connection("AUTH", password)
            except RedisError:
                connection.close()
                break  # somebody else's server has the port
            return connection
        self.stop()
        raise RuntimeError("redis-server did not start; run it by hand to see why")


def connect(address: str) -> Connection:
    """A connection to `host:port`; ValueError when that is not one."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"address {address!r} is not host:port")
    return Connection(host, int(port))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

"""Real message brokers on loopback for tests: each ends with its block, with all that it started.

Both give the address that the setting `broker` takes.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

START_DEADLINE_S = 120.0
PASSWORD = "swordfish-of-the-broker"
QUEUES = ("proctor", "proctor.bubblewrap")
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def rabbitmq_program() -> Path | None:
    """The program itself: what is on the path writes its logs to the machine's own folder."""
    if _RABBITMQ.is_file():
        return _RABBITMQ
    found = shutil.which("rabbitmq-server")
    return Path(found) if found else None


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def redis_server(folder: Path, *, password: str = "", tls: Path | None = None) -> Iterator[str]:
    """A Redis server that keeps its files in a folder. `tls`: a folder with its certificate and key."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    options = [
        "--tls-port" if tls else "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        folder,
    ]
    if password:
        options += ["--requirepass", password]
    if tls:
        files = ("--tls-cert-file", tls / "cert.pem", "--tls-key-file", tls / "key.pem")
        options += ["--port", "0", *files, "--tls-auth-clients", "no"]
    with (folder / "redis.log").open("wb") as log:
        server = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "redis-server", *options], stdout=log, stderr=log
        )
    try:
        _wait_for(port, server, folder / "redis.log")
        yield f"redis{'s' if tls else ''}://{f':{password}@' if password else ''}127.0.0.1:{port}/0"
    finally:
        _end(server)


class RabbitMQ:
    """A RabbitMQ node with a port mapper of its own; it may be stopped and is back at its old address."""

    def __init__(
        self, folder: Path, *, user: str = "guest", password: str = "guest", options: str = ""
    ) -> None:
        """`folder` gets its log when it has ended. `options`: of the application rabbit, as Erlang terms."""
        program = rabbitmq_program()
        assert program, "needs rabbitmq"
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._program = folder, program
        # Not below the folder of this session: another account must get there.
        self._home = Path(tempfile.mkdtemp(prefix="proctor-mq-", dir="/tmp"))
        self._as_user = ["setpriv", "--pdeathsig", "KILL"]
        if os.geteuid() == 0:
            shutil.chown(self._home, "rabbitmq", "rabbitmq")
            self._as_user += ["--reuid", "rabbitmq", "--regid", "rabbitmq", "--clear-groups"]
        self.port, mapper_port = free_port(), free_port()
        self.url = f"amqp://{user}:{password}@127.0.0.1:{self.port}//"
        self._environ = _rabbitmq_environment(self._home, self.port, mapper_port)
        (self._home / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = 127.0.0.1:{self.port}\ndefault_user = {user}\ndefault_pass = {password}\n"
            "disk_free_limit.absolute = 10MB\nvm_memory_high_watermark.absolute = 512MB\n"
        )
        (self._home / "advanced.config").write_text(f"[{{rabbit, [{options}]}}].\n")
        self._mapper = subprocess.Popen(
            [*self._as_user, _mapper_program(), "-address", "127.0.0.1", "-port", str(mapper_port)],
            env=self._environ, cwd=self._home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        log = self._home / "output"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*self._as_user, self._program],
                env=self._environ, cwd=self._home, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        _wait_for(self.port, self.process, log)

    def said(self) -> str:
        """What its log has."""
        return "".join(
            each.read_text(errors="replace") for each in sorted((self._home / "log").glob("*.log"))
        )

    def stop(self) -> None:
        _end_group(self.process)

    def wipe(self) -> None:
        """Forget queues and messages."""
        self.stop()
        shutil.rmtree(self._home / "data")
        self.start()

    def close(self) -> None:
        self.stop()
        _end(self._mapper)
        with suppress(OSError):
            shutil.copy(self._home / "output", self.folder / "rabbitmq.log")
        shutil.rmtree(self._home, ignore_errors=True)


@contextmanager
def rabbitmq_server(folder: Path, *, user: str = "guest", password: str = "guest") -> Iterator[str]:
    """A RabbitMQ node while the block lasts."""
    node = RabbitMQ(folder, user=user, password=password)
    try:
        yield node.url
    finally:
        node.close()


@pytest.fixture(scope="session")
def rabbitmq_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a node for all tests of a process: it starts for longer than most of them take."""
    with rabbitmq_server(tmp_path_factory.mktemp("rabbitmq"), password=PASSWORD) as url:
        yield url


@pytest.fixture
def rabbitmq(rabbitmq_node: str) -> str:
    """The address of a node without queues."""
    from kombu import Connection

    with Connection(rabbitmq_node) as connection:
        for name in QUEUES:
            connection.default_channel.queue_delete(name)
    return rabbitmq_node


def _rabbitmq_environment(home: Path, port: int, mapper_port: int) -> Mapping[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "RABBITMQ_NODENAME": f"proctor{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
        "RUNNING_UNDER_SYSTEMD": "true",  # the program replaces its shell, so that its end is the server's
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }


def _mapper_program() -> str:
    found = shutil.which("epmd") or next(
        iter(sorted(Path("/usr/lib/erlang").glob("erts-*/bin/epmd"))), "epmd"
    )
    return str(found)


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the broker did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.05)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(15)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _end_group(server: subprocess.Popen[bytes]) -> None:
    """A node's small programs are of its session, and some of them outlive it by a moment."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()

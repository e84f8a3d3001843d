"""A PostgreSQL server of one's own that ends with the session, and empty databases on it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from proctor.store.open import open_store

START_DEADLINE_S = 60.0
BOTH = ("sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres")))
"""Parameters of a fixture that gives either kind of store."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Callable[[str], str]]:
    """A PostgreSQL server on a unix socket; called with a database's name it gives the address."""
    binaries = _postgres_binaries()
    # Not below the folder of this session: another account must get there.
    folder = Path(tempfile.mkdtemp(prefix="proctor-pg-", dir="/tmp"))
    as_user = ["setpriv", "--pdeathsig", "INT"]
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        as_user += ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    data = folder / "data"
    initdb = [
        binaries / "initdb",
        "-D",
        data,
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "--no-sync",
    ]
    subprocess.run([*as_user, *initdb], check=True, capture_output=True, cwd=folder)
    quick = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "listen_addresses="]
    options = [part for each in (*quick, f"unix_socket_directories={folder}") for part in ("-c", each)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*as_user, binaries / "postgres", "-D", data, *options], stdout=log, stderr=log, cwd=folder
        )

    def address(database: str) -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(folder))}"

    try:
        _wait_until_it_answers(server, address("postgres"), folder / "log")
        yield address
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _postgres_binaries() -> Path:
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = packaged[-1] if packaged else Path(shutil.which("initdb") or "initdb")
    return found.resolve().parent


def _wait_until_it_answers(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL did not start:\n{log.read_text()}")
            time.sleep(0.02)
        else:
            return


@contextmanager
def restartable_server() -> Iterator[tuple[str, Callable[[], None]]]:
    """A server of one's own that keeps what it committed: its address, and how to crash and start it."""
    binaries = _postgres_binaries()
    folder = Path(tempfile.mkdtemp(prefix="proctor-pg-", dir="/tmp"))
    as_user = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    data = folder / "data"

    def run(*command: str | Path) -> None:
        subprocess.run([*as_user, *command], check=True, capture_output=True, cwd=folder, timeout=120)

    def control(*verb: str) -> None:
        run(binaries / "pg_ctl", "-D", data, "-l", folder / "log", "-w", "-t", "60", *verb)

    run(binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
    quick = f"-c fsync=off -c listen_addresses= -c unix_socket_directories={folder}"
    try:
        control("-o", quick, "start")
        yield (
            f"postgresql://postgres@/postgres?host={quote(str(folder))}",
            lambda: control("-o", quick, "-m", "immediate", "restart"),
        )
    finally:
        with suppress(subprocess.CalledProcessError):
            control("-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: Callable[[str], str]) -> Iterator[str]:
    """The address of an empty database."""
    import psycopg

    name = f"t{time.monotonic_ns()}"
    with psycopg.connect(postgres_server("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield postgres_server(name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: Callable[[str], str]) -> str:
    """The name of a database at the newest schema, to copy from."""
    import psycopg

    with psycopg.connect(postgres_server("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE migrated")
    open_store(postgres_server("migrated")).close()
    return "migrated"


@contextmanager
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an empty store on the tests' own server, while the block lasts."""
    import psycopg

    address: Callable[[str], str] = request.getfixturevalue("postgres_server")
    template = request.getfixturevalue("migrated_postgres")
    name = f"t{time.monotonic_ns()}"
    with psycopg.connect(address("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield address(name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=BOTH)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store of either kind."""
    if request.param == "sqlite":
        yield str(tmp_path / "proctor.db")
        return
    with database(request) as found:
        yield found

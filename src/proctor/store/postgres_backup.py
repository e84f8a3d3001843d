"""Copies of a store on PostgreSQL, by PostgreSQL's own programs: `pg_dump`, `pg_restore` and `psql`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from proctor.errors import StoreError, UsageError
from proctor.processes import host_environment
from proctor.store.database import VERSION_TABLE
from proctor.store.postgres_line import parse, refuse_pooler

_TOO_OLD = re.compile(
    r"server version: [^;]*; \w+ version: \S+|unsupported version \([\d.]+\) in file header"
)
"""What the programs say of a server, or of a copy, that is newer than they are."""


def dump(url: str, target: Path) -> None:
    """The state of one moment, in PostgreSQL's custom format. Only Proctor's own tables."""
    refuse_pooler(url, "a copy of the store")
    server, environ = _server(url)
    chosen = [f"--table={name}" for name in _tables()]
    options = ["--format=custom", "--no-owner", "--no-privileges", f"--file={target}", *chosen]
    _run("pg_dump", [*options, f"--dbname={server}"], environ)


def revision_of_dump(source: Path) -> str:
    """The schema of a copy."""
    said = _run("pg_restore", ["--data-only", f"--table={VERSION_TABLE}", "--file=-", str(source)], {})
    found = re.search(rb"^COPY .*?;\n(\S+)\n", said, re.MULTILINE)
    if not found:
        raise UsageError(f"{source}: this copy of a PostgreSQL database is none of a store of Proctor")
    return found[1].decode()


def load(url: str, source: Path) -> None:
    """Put a copy in the place of the store's tables, in one transaction."""
    refuse_pooler(url, "a copy of the store")
    server, environ = _server(url)
    script = _run("pg_restore", ["--no-owner", "--no-privileges", "--file=-", str(source)], {})
    # What clients of version 17 and newer write here an older server refuses, and it is the default.
    head, create, rest = script.partition(b"\nCREATE ")
    script = head.replace(b"\nSET transaction_timeout = 0;", b"") + create + rest
    drop = f"DROP TABLE IF EXISTS {', '.join(_tables())} CASCADE;\n"
    options = ["--quiet", "--no-psqlrc", "--single-transaction", "--set=ON_ERROR_STOP=1"]
    _run("psql", [*options, f"--dbname={server}"], environ, drop.encode() + script)


def _tables() -> list[str]:
    from proctor.store.service import tables as _service  # noqa: F401 - adds its tables to the metadata
    from proctor.store.tables import metadata

    return [*sorted(metadata.tables), VERSION_TABLE]


def _server(url: str) -> tuple[str, dict[str, str]]:
    """The address as libpq takes it, without the password: others can read the arguments of a process."""
    address, _ = parse(url)
    return address.text(None), {"PGPASSWORD": address.password} if address.password else {}


def _run(program: str, options: list[str], environ: dict[str, str], given: bytes | None = None) -> bytes:
    path = shutil.which(program)
    if path is None:
        raise UsageError(
            f"'{program}' is not installed here; install PostgreSQL's client "
            "(Debian: apt-get install postgresql-client), of the server's version or newer"
        )
    done = subprocess.run(
        [path, *options],
        input=given,
        capture_output=True,
        env=host_environment("PG*", network=True, extra=environ),
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or "it said nothing"
        if too_old := _TOO_OLD.search(said):
            raise UsageError(
                f"{path} is too old ({too_old[0]}); install PostgreSQL's client of the server's version or "
                "newer (Debian: postgresql-client-VERSION), and put it first in PATH"
            )
        raise StoreError(f"{program} failed: {said.splitlines()[0]}")
    return done.stdout

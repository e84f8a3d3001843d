"""A cluster under rough treatment: machines with a worker each, servers that come and go, what is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote, urlsplit

from tests.brokers import RabbitMQ
from tests.clusters import Postgres, Proxy, Redis
from tests.s3 import BUCKET, s3_server

ELSEWHERE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Process ids of its own, so that nobody on this machine sees that such a worker died."""
AHEAD_S = 60
SECRET = "sk-chaos-5d1e7a90c3b24f68"
LEASE_S = 6.0
_CLOCK = Path(__file__).parents[2] / "src/proctor/sandbox/clock/shift.c"


def wait_for(true: Callable[[], object], within_s: float = 60.0, what: str = "") -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, what or "waited in vain"
        time.sleep(0.05)


def clock_ahead(folder: Path) -> Path:
    """A library that moves the calendar of whoever loads it a minute ahead."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "ahead.so"
    flags = ["-O2", "-std=gnu11", "-shared", "-fPIC", "-nostdlib", "-fno-stack-protector"]
    flags += ["-fvisibility=hidden", "-fno-delete-null-pointer-checks", "-U_FORTIFY_SOURCE"]
    command = ["cc", *flags, f"-DSHIFT_S={AHEAD_S}L", "-o", library, _CLOCK]
    subprocess.run(command, check=True, capture_output=True)
    return library


@dataclass
class Machine:
    """What a worker sees as its machine: a home, a temporary folder, an environment."""

    name: str
    home: Path
    environ: Mapping[str, str]
    parallel: int
    before: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    owners: set[str] = field(default_factory=set)
    """Names of the owners of sandboxes here, by which their control groups are known."""

    @property
    def log(self) -> Path:
        return self.home.parent / f"{self.name}.log"

    def start(self) -> None:
        for folder in (self.home, self.home / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        own = {"PROCTOR_HOME": str(self.home / ".proctor"), "TMPDIR": str(self.home / "tmp")}
        command = [sys.executable, "-P", "-m", "proctor.cli.main", "worker", "--parallel", str(self.parallel)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.before, *command], cwd=self.home, env={**self.environ, **own},
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def look(self) -> None:
        """Remember whose sandboxes are here."""
        found = (self.home / ".proctor/sandboxes/sandboxes").glob("[0-9]*")
        self.owners |= {each.name for each in found if each.is_dir()}

    def kill(self) -> None:
        assert self.process
        self.look()
        self.process.kill()
        self.process.wait(60)

    def drain(self) -> None:
        assert self.process
        self.look()
        worker = self.inner() if self.before else self.process.pid
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGTERM)

    def inner(self) -> int:
        """The worker's own process id, which `unshare` is the parent of."""
        assert self.process
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text().split()[0])


@dataclass
class Cluster:
    """All servers, all machines, and a diary of what was done to them."""

    folder: Path
    postgres: Postgres
    broker: Redis | RabbitMQ
    s3: Proxy
    s3_port: int
    environ: dict[str, str]
    machines: list[Machine] = field(default_factory=list)
    diary: list[tuple[float, str]] = field(default_factory=list)

    def note(self, what: str) -> None:
        self.diary.append((time.time(), what))
        print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)  # noqa: T201 - shown when a test fails

    def proctor(self, *arguments: str, cwd: Path, **more: str) -> subprocess.Popen[str]:
        home = {"PROCTOR_HOME": str(cwd / ".proctor"), "PROCTOR_ROLLOUTS_DIR": str(cwd / "rollouts")}
        output = {"PROCTOR_OUTPUT_DIR": str(cwd / "results")}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "proctor.cli.main", *arguments],
            cwd=cwd, env={**self.environ, **home, **output, **more},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def add(self, name: str, parallel: int = 4, before: tuple[str, ...] = (), **more: str) -> Machine:
        machine = Machine(name, self.folder / name, {**self.environ, **more}, parallel, before)
        self.machines.append(machine)
        return machine


@contextmanager
def cluster(
    folder: Path, broker: Callable[[Path], Redis | RabbitMQ] = Redis, **more: str
) -> Iterator[Cluster]:
    """Servers on loopback; everything that was started ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        postgres = Postgres()
        stack.callback(postgres.close)
        told = broker(folder / "broker")
        stack.callback(told.close)
        blobs, credentials = stack.enter_context(s3_server(folder / "s3"))
        endpoint = urlsplit(_endpoint(blobs))
        assert endpoint.port
        proxy = Proxy(endpoint.port)
        stack.callback(proxy.close)
        through = quote(f"http://127.0.0.1:{proxy.port}", safe="")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
        environ = {
            **kept,
            **credentials,
            "PROCTOR_STORE": postgres.address(),
            "PROCTOR_BLOBS": f"s3://{BUCKET}/blobs?endpoint={through}&region=us-east-1",
            "PROCTOR_BROKER": told.url,
            "PROCTOR_LEASE_S": str(LEASE_S),
            **more,
        }
        made = Cluster(folder, postgres, told, proxy, endpoint.port, environ)
        stack.callback(_end_all, made)
        yield made


@contextmanager
def own_database(servers: Cluster, folder: Path) -> Iterator[Cluster]:
    """A cluster of these servers with an empty store; its machines end with the block."""
    import psycopg

    folder.mkdir(parents=True)
    name = f"t{time.monotonic_ns()}"
    with psycopg.connect(servers.postgres.address(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    environ = {**servers.environ, "PROCTOR_STORE": servers.postgres.address(name)}
    made = replace(servers, folder=folder, environ=environ, machines=[], diary=[])
    try:
        yield made
    finally:
        _end_all(made)


def _endpoint(blobs: str) -> str:
    from urllib.parse import parse_qs

    return parse_qs(urlsplit(blobs).query)["endpoint"][0]


def _end_all(made: Cluster) -> None:
    for machine in made.machines:
        if machine.process and machine.process.poll() is None:
            machine.kill()


@contextmanager
def small_disk(folder: Path, size: str = "256m") -> Iterator[Path]:
    """A file system of its own that is soon full."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """No space is left there while the block lasts."""
    filler = folder / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as sink:
        while True:
            sink.write(bytes(1 << 20))
    try:
        yield
    finally:
        filler.unlink()


def leftovers(made: Cluster) -> list[str]:
    """What workers left on this machine: processes, mounts, control groups, folders."""
    place = str(made.folder)
    found = [f"process {pid}: {line}" for pid, line in _processes(place)]
    mounted = Path("/proc/self/mountinfo").read_text().splitlines()
    own = {str(each.home) for each in made.machines}
    # Others on this machine make and remove groups meanwhile, which a walk overlooks and a glob does not.
    groups = [Path(top) / name for top, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    found += [f"mount {line}" for line in mounted if place in line and line.split()[4] not in own]
    for machine in made.machines:
        found += [
            f"control group {each}" for each in groups if each.name.removeprefix("proctor-") in machine.owners
        ]
        for part in ("sandboxes/sandboxes", "worker"):
            found += [f"folder {each}" for each in (machine.home / ".proctor" / part).rglob("*")]
        found += [f"temporary {each}" for each in (machine.home / "tmp").glob("*")]
    return found


def _processes(place: str) -> Iterator[tuple[str, str]]:
    """Processes that were started for this cluster, by their environment; servers are the test's own."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environ = (entry / "environ").read_bytes()
            if f"PROCTOR_HOME={place}".encode() in environ:
                yield entry.name, (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]


def make_task(folder: Path, seconds: float) -> Path:
    """A task whose solution takes some time."""
    files = {
        "task.toml": 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n',
        "instruction.md": "Write yes to /app/solved.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
        "solution/solve.sh": f"#!/bin/bash\nsleep {seconds}\necho yes > /app/solved\n",
        "tests/test.sh": (
            "#!/bin/bash\n"
            "if grep -q yes /app/solved; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
        ),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def write_spec(folder: Path, rollouts: int, seconds: float, **more: object) -> Path:
    """A spec of rollouts that are tried again as often as it takes."""
    task = make_task(folder / "task", seconds)
    document = {
        "name": "chaos",
        "tasks": [{"path": str(task), "agent": "oracle", "rollouts": rollouts}],
        "sandbox": {"backend": "bubblewrap", "host_root": True},
        "retries": {"infrastructure": 100, "backoff_s": 0.5, "max_backoff_s": 2},
        **more,
    }
    (folder / "spec.json").write_text(json.dumps(document))
    return folder / "spec.json"


def removed(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)

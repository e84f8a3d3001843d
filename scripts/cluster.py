"""A whole cluster on this machine, of real servers: PostgreSQL, a broker, an S3 endpoint, a server, workers.

Everything listens on free ports of loopback, writes its log to a file of the folder, and ends with this
process: Ctrl-C leaves nothing running. `make cluster` and `make cluster-demo` call it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).parents[1]
PROCTOR = (sys.executable, "-m", "proctor.cli.main")
READY_S = 120.0
BUCKET = "proctor"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ClusterError(Exception):
    """Something did not start, or ended by itself."""


class StoppedError(Exception):
    """Somebody ended it before it was up."""


@dataclass(slots=True)
class Cluster:
    """What runs, in the order in which it was started; it is ended in the other."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    parts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)
    """Set when all of it is to end."""

    def start(
        self, name: str, command: Sequence[str | Path], *, account: str = "", **environ: str
    ) -> subprocess.Popen[bytes]:
        """Start a program that ends with this one, as another account where root may not."""
        prefix = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        if account and os.geteuid() == 0:
            prefix += ["--reuid", account, "--regid", account, "--clear-groups"]
        with self.log(name).open("wb") as log:
            self.parts[name] = subprocess.Popen(
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder if not account else "/",
                env=os.environ | self.environ | environ,
                start_new_session=True,  # Ctrl-C is for this process alone, which ends them in order
            )
        return self.parts[name]

    def log(self, name: str) -> Path:
        """What a part prints."""
        return self.folder / f"{name}.log"

    def wait(self, name: str, ready: Callable[[], bool]) -> None:
        """Until it answers; with the end of its log when it does not."""
        deadline = time.monotonic() + READY_S
        while self.parts[name].poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if ready():
                    return
            if self.over.wait(0.05):
                raise StoppedError
        raise ClusterError(f"{name} did not start; {self.last_words(name)}")

    def last_words(self, name: str) -> str:
        """Where its log is, and how it ends."""
        words = self.log(name).read_text(errors="replace").splitlines()[-5:]
        return f"see {self.log(name)}:\n  " + "\n  ".join(words)

    def check(self) -> None:
        """Say which part has ended by itself."""
        for name, part in self.parts.items():
            if part.poll() is not None:
                raise ClusterError(f"{name} has ended; {self.last_words(name)}")

    def end(self) -> None:
        """End all of it: server and workers first, then what they use. What does not go in time is killed."""
        ours = [name for name in self.parts if name == "server" or name.startswith("worker-")]
        for names in (ours, [name for name in self.parts if name not in ours]):
            for name in names:
                # PostgreSQL: SIGINT ends connections too, SIGTERM would wait for them.
                _signal(self.parts[name], signal.SIGINT if name == "postgres" else signal.SIGTERM)
            for name in names:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.parts[name].wait(20)
                _signal(self.parts[name], signal.SIGKILL)  # also what it started and left
                self.parts[name].wait()


def _signal(part: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(part.pid, number)
        else:
            part.send_signal(number)


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether somebody answers there."""
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def postgres(cluster: Cluster, home: Path) -> str:
    """The store: a new database in a folder of its own, which its account can reach."""
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = packaged[-1] if packaged else shutil.which("initdb")
    if not found:
        raise ClusterError("PostgreSQL is missing; 'make cluster' as root installs it")
    programs, data, port = Path(found).resolve().parent, home / "postgres", free_port()
    if os.geteuid() == 0:
        data.mkdir()
        shutil.chown(data, "postgres", "postgres")
    new = cluster.start(
        "initdb",
        [programs / "initdb", "-D", data, *shlex.split("-U proctor -A trust -E UTF8 --locale=C --no-sync")],
        account="postgres",
    )
    if new.wait():
        raise ClusterError(f"no database could be made; {cluster.last_words('initdb')}")
    del cluster.parts["initdb"]
    options = (
        f"port={port}",
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "max_connections=300",
    )
    cluster.start(
        "postgres",
        [programs / "postgres", "-D", data, *(part for each in options for part in ("-c", each))],
        account="postgres",
    )
    ask = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    cluster.wait("postgres", lambda: not subprocess.run(ask, check=False).returncode)
    return f"postgresql://proctor@127.0.0.1:{port}/postgres"


def redis(cluster: Cluster, _: Path) -> str:
    """What wakes workers; nothing is kept in it."""
    if not shutil.which("redis-server"):
        raise ClusterError("Redis is missing; 'make cluster' as root installs it, or give --broker none")
    port = free_port()
    cluster.start("redis", ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", ""])
    cluster.wait("redis", lambda: listens(port))
    return f"redis://127.0.0.1:{port}/0"


def rabbitmq(cluster: Cluster, home: Path) -> str:
    """The same by RabbitMQ, with a port mapper of its own."""
    programs = [Path("/usr/lib/rabbitmq/bin/rabbitmq-server"), Path(shutil.which("rabbitmq-server") or "")]
    program = next((each for each in programs if each.is_file()), None)
    if program is None:
        raise ClusterError("RabbitMQ is missing; 'make cluster' as root installs it, or give --broker redis")
    place, port, mapper_port = home / "rabbitmq", free_port(), free_port()
    place.mkdir()
    (place / "rabbitmq.conf").write_text(f"listeners.tcp.local = 127.0.0.1:{port}\n")
    if os.geteuid() == 0:
        shutil.chown(place, "rabbitmq", "rabbitmq")
    environ = {
        "HOME": str(place), "RABBITMQ_NODENAME": f"proctor{port}@localhost", "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()), "RABBITMQ_MNESIA_BASE": str(place / "data"),
        "RABBITMQ_LOG_BASE": str(place / "log"), "RABBITMQ_CONFIG_FILE": str(place / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(place / "none"),
        "RUNNING_UNDER_SYSTEMD": "true", "ERL_EPMD_PORT": str(mapper_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
    }  # fmt: skip
    mapper = shutil.which("epmd") or next(Path("/usr/lib/erlang").glob("erts-*/bin/epmd"))
    cluster.start(
        "port-mapper",
        [mapper, "-address", "127.0.0.1", "-port", str(mapper_port)],
        account="rabbitmq",
        **environ,
    )
    cluster.start("rabbitmq", [program], account="rabbitmq", **environ)
    cluster.wait("rabbitmq", lambda: listens(port))
    return f"amqp://guest:guest@127.0.0.1:{port}//"


def blobs(cluster: Cluster) -> str:
    """An S3 endpoint. moto's server is a stand-in: it keeps everything in memory and checks no signature."""
    port = free_port()
    cluster.start("s3", [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)])
    cluster.wait("s3", lambda: listens(port))
    endpoint = f"http://127.0.0.1:{port}"
    DIRECT.open(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=60).close()
    cluster.environ |= {
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_REGION": "us-east-1",
    }
    return f"s3://{BUCKET}/blobs?endpoint={quote(endpoint, safe='')}&region=us-east-1"


def addresses(cluster: Cluster, home: Path, broker: str) -> Mapping[str, str]:
    """The three settings that make a cluster."""
    found = {"PROCTOR_STORE": postgres(cluster, home), "PROCTOR_BLOBS": blobs(cluster)}
    if broker != "none":
        found["PROCTOR_BROKER"] = {"redis": redis, "rabbitmq": rabbitmq}[broker](cluster, home)
    return found


def server(cluster: Cluster) -> str:
    """API, page and coordination, for one person on loopback."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    cluster.start(
        "server", [*PROCTOR, "serve", "--port", str(port)], PROCTOR_HOME=str(cluster.folder / "server")
    )

    def ready() -> bool:
        with DIRECT.open(f"{address}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)

    cluster.wait("server", ready)
    return address


def workers(cluster: Cluster, number: int, slots: int) -> None:
    """Processes that execute trials, each with a home of its own, as on machines of their own."""
    for at in range(1, number + 1):
        home = cluster.folder / f"worker-{at}"
        cluster.start(f"worker-{at}", [*PROCTOR, "worker", "--parallel", str(slots)], PROCTOR_HOME=str(home))


@contextlib.contextmanager
def own_folder(wanted: Path) -> Iterator[Path]:
    """This folder, emptied; while another cluster has it, one beside it with a number."""
    folder = wanted
    for number in itertools.count(2):
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            folder = wanted.with_name(f"{wanted.name}-{number}")
        else:
            break
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()
    try:
        yield folder
    finally:
        os.close(held)


@contextlib.contextmanager
def running(
    folder: Path, options: argparse.Namespace, over: threading.Event
) -> Iterator[tuple[Cluster, str]]:
    """The cluster and the address of its page, while the block lasts."""
    # Not below the folder: accounts of servers must get there, and a person's own folders are closed to them.
    home = Path(tempfile.mkdtemp(prefix="proctor-cluster-", dir="/tmp"))
    home.chmod(0o711)
    cluster = Cluster(folder, over=over)
    # Settings of the person's own would point elsewhere.
    for name in [name for name in os.environ if name.startswith("PROCTOR_")]:
        del os.environ[name]
    cluster.environ |= {
        "PROCTOR_OUTPUT_DIR": str(folder / "results"),
        "PROCTOR_ROLLOUTS_DIR": str(folder / "rollouts"),
        "PROCTOR_BLOBS": str(folder / "blobs"),
    }
    print("starting PostgreSQL, an S3 endpoint, a broker, a server and workers", flush=True)
    try:
        cluster.environ |= addresses(cluster, home, options.broker)
        address = server(cluster)
        workers(cluster, options.workers, options.slots)
        yield cluster, address
    finally:
        cluster.end()
        shutil.rmtree(home, ignore_errors=True)


def demo(cluster: Cluster, address: str, words: Sequence[str]) -> int:
    """Run a spec on the cluster as anybody would, and show its page."""
    print(f"\nproctor {' '.join(words)}", flush=True)
    # The project's own folder: a spec names paths of it.
    done = subprocess.run(
        [*PROCTOR, *words],
        cwd=ROOT,
        env=os.environ | {"PROCTOR_URL": address, "PROCTOR_HOME": str(cluster.folder / "client")},
        check=False,
    )
    with DIRECT.open(f"{address}/api/runs?limit=1", timeout=30) as answer:
        newest = json.load(answer)["items"][:1]
    page = f"{address}/runs/{newest[0]['id']}" if newest else f"{address}/runs"
    print(f"\nIts page: {page}\nCtrl-C ends all of it.", flush=True)
    if sys.stdout.isatty() and (os.environ.get("DISPLAY") or os.environ.get("BROWSER")):
        webbrowser.open(page)
    return done.returncode


def introduce(cluster: Cluster, address: str, options: argparse.Namespace) -> None:
    """What runs where, and how to use it."""
    print(f"page and API   {address}")
    for name in ("PROCTOR_STORE", "PROCTOR_BLOBS", "PROCTOR_BROKER"):
        meaning = name.removeprefix("PROCTOR_").lower()
        print(f"{meaning:14} {cluster.environ.get(name, 'none: workers ask the store')}")
    print(f"workers        {options.workers}, with {options.slots} trials at a time each")
    print(f"logs           {cluster.folder}/*.log")
    if cluster.environ["PROCTOR_BLOBS"].startswith("s3:"):
        print("The S3 endpoint is moto's: a stand-in that keeps everything in memory.")
    print(f"Use it: PROCTOR_URL={address} .venv/bin/proctor run SPEC")
    print("Ctrl-C ends all of it.", flush=True)


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="cluster.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=2, help="worker processes [2]")
    parser.add_argument("--slots", type=int, default=4, help="trials at a time of each [4]")
    parser.add_argument("--broker", choices=("redis", "rabbitmq", "none"), default="redis", help="[redis]")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "demo/cluster", help="logs and files; emptied first"
    )
    parser.add_argument("--demo", action="store_true", help="run a spec on it and show its page")
    parser.add_argument("--once", action="store_true", help="end when it is up and the demo is over")
    parser.add_argument("words", nargs="*", help="with --demo: the command, after '--' [run, two tasks]")
    return parser.parse_args(words)


DEMO = "run -t tasks/config-edit -t tasks/log-forensics -a oracle -a nop -n 5 --host-root"


def main(words: Sequence[str]) -> int:
    """Start all of it, and end it when asked to or when a part of it is gone."""
    options, over = parsed(words), threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda *_: over.set())
    code = 0
    try:
        with (
            own_folder(options.folder.resolve()) as folder,
            running(folder, options, over) as (cluster, address),
        ):
            introduce(cluster, address, options)
            if options.demo and not over.is_set():
                code = demo(cluster, address, options.words or shlex.split(DEMO))
            while not (options.once or over.is_set()):
                cluster.check()
                over.wait(0.5)
    except StoppedError:
        pass
    except (ClusterError, PermissionError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 4
    print("ended; nothing is left running", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

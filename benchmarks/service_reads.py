"""What reading through the server costs: CPU per request, requests a second, events a second, an idle server.

Run it as `python benchmarks/service_reads.py [--trials 100000] [--quick]`. The store is made in a temporary
folder: ten large runs that share the trials, and a hundred small ones. CPU is that of the server's process
alone, by the kernel's count in nanoseconds, so a busy machine does not change it much; requests a second are
by the clock, on two cores that the client shares. The first request to each address is listed apart: what a
run that has ended cannot change any more is worked out then, and kept; of the newest runs after the start of
the server, before anybody asks.

`--inspect PYTHON` names the interpreter of an environment with inspect-ai: a log with as many samples as one
large run has trials is made there, and the addresses that its page asks are measured in the same way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proctor.model.outcome import from_reward
from proctor.model.plan import PlannedTrial, trial_key
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.store import steps
from proctor.store.open import open_store
from proctor.store.store import Store

LARGE, SMALL, SMALL_TRIALS, ROLLOUTS = 10, 100, 20, 50
LIMIT_MS = 10.0


def planned(run: int, index: int, rollouts: int) -> PlannedTrial:
    task = f"org/task-{index // rollouts:04d}"
    return PlannedTrial(
        key=trial_key(subject_digest=task, params={"run": run}, rollout=index),
        index=index,
        kind="task",
        subject=task,
        subject_digest="d" * 64,
        body=0,
        seed=index,
        agent="terminal",
        agent_version="1",
        model="some/model",
        overrides={"sandbox": {"host_root": True}},
        rollout=index % rollouts,
        path=f"/tasks/{task}",
    )


def record(trial: PlannedTrial, at: float) -> AttemptRecord:
    reward = float((trial.index * 7919) % 10 < 6)
    return AttemptRecord(
        key=trial.key,
        number=1,
        outcome=from_reward(reward),
        started_at=at,
        ended_at=at + 30,
        reward=reward,
        phases_s={"image": 0.1, "start": 0.1, "agent": 20.0, "verify": 5.0, "stop": 0.1},
        metrics={"rewards": {"reward": reward}},
        ledger={"cpu_s": 1.5, "peak_memory_bytes": 1 << 27, "backend": "bubblewrap"},
        usage={"prompt_tokens": 12_000, "completion_tokens": 900, "cost_usd": 0.05, "requests": 12},
        worker="bench",
    )


def fill(store: Store, trials: int) -> None:
    sizes = [trials // LARGE] * LARGE + [SMALL_TRIALS] * SMALL
    for run, size in enumerate(sizes):
        at = 1_760_000_000.0 + run * 3600
        rollouts = ROLLOUTS if size > SMALL_TRIALS else 5
        plan = [planned(run, index, rollouts) for index in range(size)]
        info = RunInfo(
            id=f"20260101T{run:06d}-{run:06x}",
            name=f"nightly-{run % 7}",
            kind="task",
            status=RunStatus.DONE,
            created_at=at,
            started_at=at,
            finished_at=at + 1800,
            seed=1,
            total=size,
        )
        store.import_run(info, plan, ((record(trial, at), True) for trial in plan))


@dataclass(frozen=True)
class Server:
    """A server that runs, and what it has used."""

    process: subprocess.Popen[str]
    address: str

    @property
    def cpu_ns(self) -> int:
        """Of all threads, so far. The engine is another process."""
        place = Path(f"/proc/{self.process.pid}/task")
        return sum(int((each / "schedstat").read_text().split()[0]) for each in place.iterdir())

    @property
    def rss_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1000
        return 0.0

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])


def start(home: Path) -> Server:
    process = subprocess.Popen(
        [sys.executable, "-m", "proctor.cli.main", "serve", "--port", "0"],
        env={**os.environ, "PROCTOR_HOME": str(home / ".proctor"), "PROCTOR_SERVE_RATE": "1000000"},
        cwd=home,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = next(line.split()[0] for line in process.stdout if line.startswith("http"))
    return Server(process, address)


def paths() -> dict[str, str]:
    large = f"20260101T{0:06d}-{0:06x}"
    return {
        "runs": "/api/runs",
        "runs, sorted by score": "/api/runs?sort=-score",
        "runs, searched": "/api/runs?q=nightly-3",
        "one run": f"/api/runs/{large}",
        "trials": f"/api/runs/{large}/trials",
        "trials, filtered, sorted": f"/api/runs/{large}/trials?outcome=failed&sort=-took",
        "matrix": f"/api/runs/{large}/matrix",
        "errors": f"/api/runs/{large}/errors",
        "report": f"/api/runs/{large}/document",
        "one trial": f"/api/trials/{large}/77",
        "queue": "/api/queue",
        "series": "/api/series",
    }


def reads(server: Server, rounds: int, addresses: dict[str, str]) -> None:
    print(f"{'read':28} {'first ms':>9} {'p50 ms':>8} {'p99 ms':>8} {'kB':>8}")
    for name, path in addresses.items():
        first, size = cost(server, path)
        found = sorted(cost(server, path)[0] for _ in range(rounds))
        p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
        mark = "" if p99 <= LIMIT_MS else "  above the limit"
        print(f"{name:28} {first:9.2f} {statistics.median(found):8.2f} {p99:8.2f} {size / 1000:8.1f}{mark}")


def cost(server: Server, path: str) -> tuple[float, int]:
    before = server.cpu_ns
    with urllib.request.urlopen(server.address + path) as answer:
        size = len(answer.read())
    return (server.cpu_ns - before) / 1e6, size


def until_quiet(server: Server) -> float:
    """Wait until the server has worked out the newest runs, as it does after its start; the CPU ms of it."""
    before = last = server.cpu_ns
    while True:
        time.sleep(2)
        if server.cpu_ns - last < 50e6:
            return (last - before) / 1e6
        last = server.cpu_ns


async def rate(server: Server, path: str, seconds: float, clients: int = 8) -> tuple[float, float]:
    """Requests a second by the clock, and by CPU of the server."""
    count = 0
    end = time.monotonic() + seconds

    async def client() -> None:
        nonlocal count
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
        while time.monotonic() < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head.split(b"\r\n", 1)[0], head
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            count += 1
        writer.close()

    cpu, began = server.cpu_ns, time.monotonic()
    await asyncio.gather(*(client() for _ in range(clients)))
    return count / (time.monotonic() - began), count / ((server.cpu_ns - cpu) / 1e9)


async def stream(server: Server, home: Path, seconds: float, per_s: int) -> None:
    """Write events at a rate and read them by one stream; how late each arrives."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
    await reader.readuntil(b"stream.open")
    wanted = int(seconds * per_s)
    writing = asyncio.create_task(asyncio.to_thread(write_events, home, wanted, per_s))
    lags: list[float] = []
    began, cpu = time.time(), server.cpu_ns
    rest = b""
    while len(lags) < wanted:
        *lines, rest = (rest + await reader.read(1 << 20)).split(b"\n")
        now = time.time()
        lags += [now - json.loads(line[6:])["at"] for line in lines if line.startswith(b'data: {"id"')]
    took = time.time() - began
    await writing
    writer.close()
    halves = [statistics.median(part) for part in (lags[: wanted // 2], lags[wanted // 2 :])]
    share = (server.cpu_ns - cpu) / 1e9 / took
    first, second = (f"{half * 1000:.0f} ms" for half in halves)
    print(
        f"events: {wanted} in {took:.1f} s, {wanted / took:.0f} a second; median lag {first} in the first "
        f"half, {second} in the second; server {share:.0%} of a core"
    )


def write_events(home: Path, count: int, per_s: int) -> None:
    batch, began = 50, time.monotonic()
    with open_store(str(home / ".proctor" / "proctor.db")) as store:
        run = store.runs(limit=1)[0].id
        for at in range(0, count, batch):
            with store._db.write() as tx:
                for number in range(min(batch, count - at)):
                    steps.write_event(tx, run, "bench.tick", {"n": at + number})
            left = began + (at + batch) / per_s - time.monotonic()
            if left > 0:
                time.sleep(left)


async def idle(server: Server, seconds: float) -> None:
    """With one page open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
    await reader.readuntil(b"stream.open")
    cpu = server.cpu_ns
    await asyncio.sleep(seconds)
    share = (server.cpu_ns - cpu) / 1e9 / seconds
    writer.close()
    print(f"idle with one page open: {share:.2%} of a core; memory {server.rss_mb:.0f} MB")


def measured(home: Path, trials: int, *, quick: bool) -> Iterator[str]:
    began = time.monotonic()
    with open_store(str(home / ".proctor" / "proctor.db")) as store:
        fill(store, trials)
    addresses = paths()
    yield f"store with {trials + SMALL * SMALL_TRIALS} trials made in {time.monotonic() - began:.0f} s"
    server = start(home)
    try:
        yield f"server started; memory {server.rss_mb:.0f} MB"
        yield f"the newest runs were worked out meanwhile with {until_quiet(server):.0f} ms CPU"
        asyncio.run(idle(server, 2 if quick else 5))
        reads(server, 20 if quick else 200, addresses)
        for name in ("runs", "trials", "series"):
            by_clock, by_cpu = asyncio.run(rate(server, addresses[name], 1 if quick else 4))
            yield f"{name}: {by_clock:.0f} requests/s by the clock; {by_cpu:.0f} per second of one core's CPU"
        asyncio.run(stream(server, home, 2 if quick else 6, 5000))
        asyncio.run(idle(server, 2 if quick else 5))
    finally:
        server.process.terminate()
        server.process.wait(20)


MAKE_LOG = """
import sys
from inspect_ai.log import (EvalConfig, EvalDataset, EvalLog, EvalPlan, EvalResults, EvalSample, EvalSpec,
    EvalStats, write_eval_log)
from inspect_ai.model import ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score
n = int(sys.argv[1])
samples = [EvalSample(id=f"task-{i // 50:04d}", epoch=i % 50 + 1, input="do it", target="1",
    messages=[ChatMessageUser(content="do it")], output=ModelOutput.from_content("m", "ok"),
    scores={"reward": Score(value=float(i * 7919 % 10 < 6))}) for i in range(n)]
spec = EvalSpec(created="2026-01-01T00:00:00+00:00", task="bench", model="some/model",
    dataset=EvalDataset(name="d", samples=n // 50), config=EvalConfig(epochs=50))
write_eval_log(EvalLog(status="success", eval=spec, plan=EvalPlan(), stats=EvalStats(), samples=samples,
    results=EvalResults(total_samples=n, completed_samples=n)), sys.argv[2])
"""


def packed(log: Path, name: str) -> tuple[int, int]:
    """The first and last byte of a part of the log, which the viewer's page unpacks by itself."""
    with zipfile.ZipFile(log) as archive:
        found = next(each for each in archive.infolist() if each.filename.startswith(name))
    return found.header_offset, found.header_offset + 30 + len(found.filename) + found.compress_size


def inspect_view(home: Path, python: Path, samples: int, rounds: int) -> None:
    """The viewer of inspect-ai on a log of the size of one large run."""
    logs = home / "logs"
    logs.mkdir()
    log = logs / "2026-01-01T00-00-00_bench_abc.eval"
    subprocess.run([python, "-c", MAKE_LOG, str(samples), str(log)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(python.with_name("inspect")), "view", "start", "--log-dir", str(logs), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    server = Server(process, f"http://127.0.0.1:{port}")
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                cost(server, "/api/log-files")
                break
            except OSError:
                time.sleep(0.5)
        name = urllib.parse.quote(f"file://{log}", safe="")
        print(f"inspect view, a log of {samples} samples; memory {server.rss_mb:.0f} MB")
        page = {"logs": "/api/log-files", "info": f"/api/log-info/{name}"}
        for title, part in (
            ("samples, packed", "summaries.json"),
            ("one sample, packed", "samples/task-0001_"),
        ):
            start, end = packed(log, part)
            page[title] = f"/api/log-bytes/{name}?start={start}&end={end}"
        reads(server, rounds, page)
        reads(server, 2, {"whole log, of the API": f"/api/logs/{name}"})
    finally:
        process.terminate()
        process.wait(20)


def main() -> None:
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="Fewer requests: to see that it works.")
    parser.add_argument("--inspect", type=Path, metavar="PYTHON", help="Also measure inspect-ai's viewer.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="proctor-reads-") as folder:
        for line in measured(Path(folder), asked.trials, quick=asked.quick):
            print(line, flush=True)
        if asked.inspect:
            inspect_view(Path(folder), asked.inspect, asked.trials // LARGE, 20 if asked.quick else 100)


if __name__ == "__main__":
    main()

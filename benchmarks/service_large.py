"""What large things cost the server: a log of a gigabyte, a transcript of 5,000 steps, a run in motion.

Run it as `python benchmarks/service_large.py [--quick]`. CPU is that of the server's process alone, as in
`service_reads.py`, whose tables this continues; memory is how much the process grew. Of a run that goes on an
answer is kept for a second, so its rows are measured with a second between them: that is what a page that
watches it costs, however many watch.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from service_reads import Server, cost, planned, record, start

from proctor.model.record import Artifact
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.store.blobs import FolderBlobs
from proctor.store.open import open_store

ENDED, GOING = "20260101T000000-aaaaaa", "20260102T000000-bbbbbb"
TRIALS, STEPS = 10_000, 5_000
BLOCK = b"".join(b"%07d some words of a build that says what it does\n" % at for at in range(20_000))


def log_of(blobs: FolderBlobs, folder: Path, size: int) -> Artifact:
    """A log of a size, with one line to be found near its end."""
    made, digest, written = folder / "log", hashlib.sha256(), 0
    with made.open("wb") as file:
        while written < size:
            block = BLOCK if written + len(BLOCK) < size else b"the needle\n" + BLOCK
            file.write(block)
            digest.update(block)
            written += len(block)
    found = blobs.put_file(made, "logs/agent.txt", "text/plain")
    assert found.digest.removeprefix("sha256:") == digest.hexdigest()
    return found


def transcript_of(blobs: FolderBlobs) -> Artifact:
    call = {"tool_call_id": "c", "function_name": "shell", "arguments": {"command": "make test"}}
    steps = [
        {
            "step_id": at,
            "source": "agent",
            "message": f"Step {at}: " + "thinking aloud " * 20,
            "tool_calls": [call],
            "observation": {"results": [{"source_call_id": "c", "content": "a line of output\n" * 60}]},
            "metrics": {"prompt_tokens": 900, "completion_tokens": 40},
        }
        for at in range(1, STEPS + 1)
    ]
    document = {"schema_version": "ATIF-v1.4", "agent": {"name": "terminal", "version": "1"}, "steps": steps}
    return blobs.put_bytes(json.dumps(document).encode(), "trajectory.json", "application/json")


def fill(home: Path, size: int) -> None:
    from msgspec import structs

    blobs = FolderBlobs(home / ".proctor" / "blobs")
    artifacts = (log_of(blobs, home, size), transcript_of(blobs))
    at = 1_760_000_000.0
    about = {"kind": "task", "created_at": at, "started_at": at, "seed": 1}
    with open_store(str(home / ".proctor" / "proctor.db")) as store:
        one = planned(0, 0, 1)
        ended = RunInfo(id=ENDED, name="large", status=RunStatus.DONE, finished_at=at, total=1, **about)
        store.import_run(ended, [one], [(structs.replace(record(one, at), artifacts=artifacts), True)])
        plan = [planned(1, index, 50) for index in range(TRIALS)]
        going = RunInfo(id=GOING, name="going", status=RunStatus.RUNNING, total=TRIALS, **about)
        store.import_run(going, plan, ((record(each, at), True) for each in plan[: TRIALS // 2]))


def rows(server: Server, addresses: dict[str, str], times: int, before: Callable[[], None]) -> None:
    for name, path in addresses.items():
        found = []
        for _ in range(times):
            before()
            found.append(cost(server, path))
        first, *rest = [each for each, _ in found]
        print(
            f"{name:34} {first:9.2f} {sorted(rest)[len(rest) // 2]:9.2f} {max(rest):9.2f} "
            f"{found[-1][1] / 1000:8.1f} {server.rss_mb:8.0f}",
            flush=True,
        )


def measured(home: Path, *, quick: bool) -> None:
    size = (64 << 20) if quick else (1 << 30)
    fill(home, size)
    log, run = f"/api/trials/{ENDED}/0/logs/agent.txt", f"/api/runs/{GOING}"
    server = start(home)
    try:
        cost(server, "/api/runs")
        print(f"memory at the start: {server.rss_mb:.0f} MB; the log has {size >> 20} MiB")
        print(f"{'read':34} {'first ms':>9} {'p50 ms':>9} {'most ms':>9} {'kB':>8} {'MB then':>8}")
        quiet = {
            "log, its end": f"{log}?tail=65536",
            "log, in the middle": f"{log}?offset={size // 2}&length=65536",
            "log, searched from near its end": f"{log}/search?q=needle&from={size - (4 << 20)}.0",
            "log, a common word": f"{log}/search?q=0000007",
            "log, a page of 512 MiB searched": f"{log}/search?q=nothing+such",
            "transcript, first page": f"/api/trials/{ENDED}/0/transcript",
            "transcript, last page": f"/api/trials/{ENDED}/0/transcript?from={STEPS - 200}",
            "transcript, one step whole": f"/api/trials/{ENDED}/0/transcript?step=2500&full=1",
        }
        rows(server, quiet, 4, lambda: None)
        moving = {f"running, {name}": f"{run}/{name}" for name in ("matrix", "document", "errors", "trials")}
        rows(server, moving | {"running, the run": run}, 4, lambda: time.sleep(1.05))
    finally:
        server.process.terminate()
        server.process.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="A log of 64 MiB.")
    with tempfile.TemporaryDirectory(prefix="proctor-large-") as folder:
        measured(Path(folder), quick=parser.parse_args().quick)


if __name__ == "__main__":
    main()

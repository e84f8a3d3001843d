"""Servers are found dead, started again, and never outlive whoever started them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.errors import SandboxError
from proctor.experiments.discover import find
from proctor.model.outcome import Outcome
from proctor.model.spec import ExperimentBody, Iterations
from proctor.processes import all_processes, descendants, marked, read_process
from proctor.trial.forkserver import client
from proctor.trial.forkserver.client import ForkServer, ImportFailedError

HERE = Path(__file__).parent


def eventually(check: Callable[[], bool], within_s: float = 30) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.01)
    return False


async def soon(check: Callable[[], bool], within_s: float = 30) -> None:
    async with asyncio.timeout(within_s):
        while not check():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.01)


def test_a_killed_server_costs_one_point_and_nothing_is_left_of_it(bench, run, monkeypatch):
    monkeypatch.setenv("PROCTOR_TEST_MARK", f"server-{os.getpid()}")
    mark = f"PROCTOR_TEST_MARK=server-{os.getpid()}"
    body = ExperimentBody(experiment="subject", iterations=Iterations(measured=4))
    executor = bench.executor(body)

    async def scenario():
        try:
            job = asyncio.create_task(
                executor.execute(
                    bench.trial(0, {"what": "hang_with_children"}, slug="subject"), bench.lease(0)
                )
            )
            # Server, lane, zygote, child and its own sleeper; the daemon has no environment at all.
            await soon(lambda: len(marked(mark)) >= 5)
            os.kill(executor._servers["subject", None]._process.pid, signal.SIGKILL)
            lost = await job
            fine = await executor.execute(bench.trial(1, {}, slug="subject"), bench.lease(1))
            return lost, fine
        finally:
            await executor.close()

    lost, fine = run(scenario)
    assert (lost.outcome, fine.outcome) == (Outcome.SANDBOX_ERROR, Outcome.PASSED)
    assert eventually(lambda: marked(mark) == [])


def test_a_cancelled_attempt_has_ended_its_processes_before_the_cancellation_passes(bench, run):
    executor = bench.executor(ExperimentBody(experiment="subject", iterations=Iterations(measured=4)))

    async def scenario():
        try:
            job = asyncio.create_task(
                executor.execute(
                    bench.trial(0, {"what": "hang_with_children"}, slug="subject"), bench.lease(0)
                )
            )
            await soon(lambda: ("subject", None) in executor._servers)
            server = executor._servers["subject", None]._process.pid
            await soon(lambda: len(descendants(server)) >= 5)
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job
            # The lane itself may still be on its way out; it has no memory left then.
            left = [each for each in descendants(server) if each.resident_bytes]
            again = await executor.execute(bench.trial(1, {}, slug="subject"), bench.lease(1))
            return left, again
        finally:
            await executor.close()

    left, again = run(scenario)
    assert left == []
    assert again.outcome is Outcome.PASSED


CONTROLLER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import Bench
from proctor.model.spec import ExperimentBody, Iterations
bench = Bench(Path(sys.argv[2]))
executor = bench.executor(ExperimentBody(experiment="subject", iterations=Iterations(measured=4)))
asyncio.run(executor.execute(bench.trial(0, {"what": "hang_with_children"}, slug="subject"), bench.lease(0)))
"""


def test_nothing_outlives_a_controller_that_was_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("PROCTOR_TEST_MARK", f"controller-{os.getpid()}")
    before = {each.pid for each in all_processes()}
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(HERE), str(tmp_path)], start_new_session=True
    )
    sleepers = lambda: [  # noqa: E731 - a check, named for the reader
        each for each in descendants(process.pid) if _name(each.pid) == "sleep"
    ]
    assert eventually(lambda: len(sleepers()) == 2)
    started = [each.pid for each in descendants(process.pid)]
    scratch = _scratch(started)
    process.kill()
    process.wait()
    assert eventually(lambda: all(_gone(pid) for pid in started if pid not in before))
    assert eventually(lambda: not scratch.exists())


def test_a_server_that_does_not_start_says_so(tmp_path, run, monkeypatch):
    monkeypatch.setattr(client, "_HERE", (sys.executable, "-P", "-m", "proctor.no_such_module"))
    server = ForkServer(slug="counting", sources=[])
    with pytest.raises(SandboxError, match="No module named"):
        run(server.start)


def test_an_import_that_hangs_is_ended(tmp_path, run, monkeypatch):
    module = tmp_path / "sleepy.py"
    module.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(client, "START_TIMEOUT_S", 1.5)
    server = ForkServer(slug="sleepy", sources=[str(module)])
    monkeypatch.setattr(client, "CLOSE_TIMEOUT_S", 0.1)
    with pytest.raises(ImportFailedError, match="took more than"):
        run(server.start)
    assert server._process.returncode == -signal.SIGKILL


def test_a_server_serves_points_of_numpy_users_with_seeded_numbers(tmp_path, run, bench):
    module = tmp_path / "arrays.py"
    module.write_text(
        "import numpy\n"
        "from proctor import Experiment, register_experiment\n"
        "@register_experiment('arrays')\n"
        "class Arrays(Experiment):\n"
        "    def execute_once(self, context):\n"
        "        return {'draw': numpy.random.random(), 'kind': numpy.float32(0.5)}\n"
    )
    executor = bench.executor(ExperimentBody(experiment="arrays"), sources=[str(module)])

    async def twice():
        try:
            return [
                await executor.execute(bench.trial(0, {}, slug="arrays"), bench.lease(0)) for _ in range(2)
            ]
        finally:
            await executor.close()

    first, second = run(twice)
    assert first.iterations[0]["draw"] == second.iterations[0]["draw"]
    assert first.iterations[0]["kind"] == 0.5


def _gone(pid: int) -> bool:
    found = read_process(pid)
    return found is None or found.gone


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _scratch(pids: list[int]) -> Path:
    for pid in pids:
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(b"TMPDIR=") and b"/proctor-" in entry:
                return Path(entry.decode().partition("=")[2]).parent
    raise AssertionError("no temporary folder in any environment")


def test_a_report_that_makes_no_sense_is_the_codes_own_error(bench, run, monkeypatch):
    executor = bench.executor(ExperimentBody(experiment="counting"))

    async def nonsense(*_):
        return {"neither": "rows nor report"}

    monkeypatch.setattr(ForkServer, "run", nonsense)

    async def one():
        try:
            return await executor.execute(bench.trial(0, {}, slug="counting"), bench.lease(0))
        finally:
            await executor.close()

    record = run(one)
    assert record.outcome is Outcome.AGENT_ERROR
    assert record.failure.type == "BadReport"


VERSION = """
from proctor import Experiment, register_experiment

@register_experiment("of_two_versions")
class Own(Experiment):
    def execute_once(self, context):
        from near_by import NUMBER
        return {"number": NUMBER}
"""


def test_two_runs_measure_each_its_own_version_of_an_experiment(bench, tmp_path):
    """Both are opened before either begins, as by one engine."""
    executors = []
    for number in (1, 2):
        folder = tmp_path / f"version-{number}"
        folder.mkdir()
        (folder / "own.py").write_text(VERSION)
        (folder / "near_by.py").write_text(f"NUMBER = {number}\n")
        find("of_two_versions", [str(folder)])  # as it is looked up when a run is made ready
        body = ExperimentBody(experiment="of_two_versions", iterations=Iterations(measured=2))
        executors.append(bench.executor(body, sources=[str(folder)]))

    async def measure():
        trial = bench.trial(0, {}, slug="of_two_versions")
        try:
            return await asyncio.gather(*(each.execute(trial, bench.lease(0)) for each in executors))
        finally:
            await asyncio.gather(*(each.close() for each in executors))

    records = asyncio.run(measure())
    assert [each.outcome for each in records] == [Outcome.PASSED, Outcome.PASSED]
    assert [each.iterations[0]["number"] for each in records] == [1, 2]

"""Disturbed sandboxes, on the fake one: what is changed, and what is said when nothing changed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from proctor.errors import SandboxError
from proctor.model.vetting import Check
from proctor.runs.vet import perturb
from proctor.runs.vet.perturb import LIBRARY, ZONE, DisturbedBackend, DisturbedSandbox, NotTried, disturbance
from proctor.sandbox.base import (
    Before,
    HasServices,
    Limits,
    Root,
    SandboxRequest,
    can,
    companion,
    dial,
    exec_after,
    host_failure,
)
from proctor.sandbox.bubblewrap import BubblewrapSandbox
from proctor.sandbox.container.sandbox import ContainerSandbox
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult, FakeSandbox
from proctor.sandbox.harbor.sandbox import HarborSandbox
from proctor.sandbox.programs import AHEAD_S
from proctor.trial.collect import KeepsState

pytestmark = pytest.mark.anyio


def inside(command: FakeCommand) -> FakeResult:
    """A machine that is disturbed as asked."""
    script = command.argv[-1]
    if script == "command -v taskset":
        return FakeResult(stdout=b"/usr/bin/taskset\n")
    if script == "nproc":
        return FakeResult(stdout=b"1\n" if command.argv[0].endswith("taskset") else b"8\n")
    if script == "date +%s":
        ahead = AHEAD_S if "LD_PRELOAD" in command.env else 0
        return FakeResult(stdout=f"{time.time() + ahead:.0f}\n".encode())
    if script == "date +%z":
        return FakeResult(stdout=b"+1345\n" if command.env.get("TZ") == ZONE else b"+0000\n")
    return FakeResult(stdout=b"done")


def asked(**limits: object) -> SandboxRequest:
    return SandboxRequest(name="x", root=Root(), limits=Limits(**limits))  # type: ignore[arg-type]


async def started(check: Check, tmp_path: Path, fake: Fake, **limits: object):
    change = disturbance(check, tmp_path)
    assert change is not None
    sandbox = DisturbedBackend(fake, change).sandbox(asked(**limits))
    await sandbox.start()
    return sandbox


@pytest.mark.parametrize("check", [Check.ORACLE, Check.NOP, Check.LOADED])
async def test_some_checks_leave_their_sandboxes_alone(check: Check, tmp_path: Path):
    assert disturbance(check, tmp_path) is None


async def test_one_cpu_pins_every_command_and_never_gives_more_than_the_task_has(tmp_path: Path):
    fake = Fake(handler=inside)
    sandbox = await started(Check.ONE_CPU, tmp_path, fake, cpus=4.0)
    await sandbox.exec(["solve"], env={"A": "1"}, cwd="/app")
    command = fake.sandboxes[0].commands[-1]
    assert command.argv[0] == "/usr/bin/taskset"
    assert command.argv[-1] == "solve"
    assert command.env["A"] == "1"
    assert fake.sandboxes[0].request.limits.cpus == 1.0
    await started(Check.ONE_CPU, tmp_path, fake, cpus=0.5)
    assert fake.sandboxes[1].request.limits.cpus == 0.5


async def test_network_off_takes_the_network_and_its_exceptions(tmp_path: Path):
    fake = Fake(handler=inside)
    sandbox = await started(
        Check.NETWORK_OFF, tmp_path, fake, network="allowlist", allowed_hosts=("a.example",)
    )
    limits = fake.sandboxes[0].request.limits
    assert (limits.network, limits.allowed_hosts) == ("none", ())
    await sandbox.set_network("public")
    assert fake.sandboxes[0].networks == [("none", ())]


async def test_other_disturbances_leave_the_network_of_each_phase(tmp_path: Path):
    fake = Fake(handler=inside)
    sandbox = await started(Check.TIME_ZONE, tmp_path, fake)
    await sandbox.set_network("allowlist", ["a.example"])
    assert fake.sandboxes[0].networks == [("allowlist", ("a.example",))]


async def test_the_clock_library_is_brought_in_and_loaded_by_every_command(tmp_path: Path):
    fake = Fake(handler=inside)
    sandbox = await started(Check.CLOCK, tmp_path, fake)
    assert fake.sandboxes[0].files[LIBRARY].startswith(b"\x7fELF")
    await sandbox.exec(["solve"])
    assert fake.sandboxes[0].commands[-1].env["LD_PRELOAD"] == LIBRARY


async def test_another_time_zone_is_given_to_every_command(tmp_path: Path):
    fake = Fake(handler=inside)
    sandbox = await started(Check.TIME_ZONE, tmp_path, fake)
    await sandbox.exec(["solve"], env={"TZ": "UTC"})
    assert fake.sandboxes[0].commands[-1].env["TZ"] == ZONE


@pytest.mark.parametrize(
    ("check", "said"),
    [(Check.ONE_CPU, "taskset"), (Check.CLOCK, "did not change"), (Check.TIME_ZONE, "did not change")],
)
async def test_a_disturbance_that_does_not_take_is_not_tried_and_leaves_nothing(
    check: Check, said: str, tmp_path: Path
):
    fake = Fake()
    with pytest.raises(NotTried, match=said):
        await started(check, tmp_path, fake)
    assert not fake.sandboxes[0].running


async def test_without_a_compiler_the_clock_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(perturb, "clock_library", lambda cache_dir: None)
    with pytest.raises(NotTried, match="no C compiler"):
        await started(Check.CLOCK, tmp_path, Fake(handler=inside))


async def test_a_library_that_cannot_be_brought_in_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(perturb, "LIBRARY", "relative")
    with pytest.raises(NotTried, match="could not be copied into the sandbox"):
        await started(Check.CLOCK, tmp_path, Fake(handler=inside))


async def test_a_sandbox_that_does_not_start_fails_as_it_always_does(tmp_path: Path):
    with pytest.raises(SandboxError, match="told to fail"):
        await started(Check.TIME_ZONE, tmp_path, Fake(handler=inside, fail_start=1))


async def test_everything_else_is_the_real_sandbox(tmp_path: Path):
    fake = Fake(handler=inside)
    sandbox = await started(Check.TIME_ZONE, tmp_path, fake)
    (tmp_path / "file").write_text("x")
    await sandbox.upload(tmp_path / "file", "/app/file")
    await sandbox.download("/app/file", tmp_path / "back")
    assert (tmp_path / "back").read_text() == "x"
    assert not can(sandbox, KeepsState)
    await sandbox.end_processes(["/app"])
    assert fake.sandboxes[0].ended == 1
    assert sandbox.info().backend == "fake"
    await sandbox.stop()
    assert not fake.sandboxes[0].running
    backend = DisturbedBackend(fake, perturb.Disturbance())
    assert await backend.reap() == ()
    await backend.close()
    assert backend.name == "fake"


CHANGED = {"start", "exec", "exec_after", "dial", "set_network"}
"""What a disturbance has its own word in."""
KINDS = (FakeSandbox, BubblewrapSandbox, ContainerSandbox, HarborSandbox)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
def test_all_that_a_kind_of_sandbox_has_is_passed_on_but_what_a_disturbance_changes(kind: type):
    class Noted(kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self.only_here = "of the object"

    for name in dir(kind):
        if not name.startswith("_"):
            setattr(Noted, name, f"the real {name}")
    names = [name for name in dir(Noted) if not name.startswith("_") and name not in CHANGED]
    disturbed = perturb.disturbed_kind(Noted)(Noted(), perturb.Disturbance())  # type: ignore[arg-type]
    assert {"stop", "info", "upload", "download"} < set(names)
    assert {name: getattr(disturbed, name) for name in names} == {name: f"the real {name}" for name in names}
    assert disturbed.only_here == "of the object"
    own = {name for name in vars(DisturbedSandbox) if not name.startswith("_")}
    assert own == CHANGED, "what is not changed is not written here again"


class ServingSandbox(FakeSandbox):
    """A fake with what the containers of a compose file have."""

    covered = frozenset({"etc/hosts"})

    def companion(self, service: str) -> str:  # type: ignore[override]
        return f"service {service}"

    async def host_failure(self) -> str:
        return "the engine has gone"

    async def exec_after(self, before: Before, argv, **options):
        assert before.fresh == ["/tests"]
        return await self.exec(argv, **options)

    async def dial(self, program, arguments, **options):
        raise AssertionError("it would run undisturbed")


async def test_a_disturbed_sandbox_has_the_services_of_the_real_one_and_disturbs_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fake = Fake(handler=inside)
    monkeypatch.setattr("proctor.sandbox.fake.FakeSandbox", ServingSandbox)
    sandbox = await started(Check.TIME_ZONE, tmp_path, fake)
    assert can(sandbox, HasServices)
    assert companion(sandbox, "db") == "service db"
    assert getattr(sandbox, "covered", frozenset()) == {"etc/hosts"}
    assert await host_failure(sandbox) == "the engine has gone"
    await exec_after(sandbox, Before(fresh=["/tests"]), ["solve"], env={"A": "1"})
    assert fake.sandboxes[0].commands[-1].env == {"A": "1", "TZ": ZONE}
    assert await dial(sandbox, Path("program"), []) is None

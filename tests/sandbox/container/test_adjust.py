"""What the doctor says about podman and docker."""

from __future__ import annotations

import shutil

import pytest

from proctor.errors import SandboxError
from proctor.sandbox.container import adjust
from proctor.sandbox.container.backend import Containers
from proctor.sandbox.container.engine import PODMAN, Adjustment

pytestmark = pytest.mark.anyio


@pytest.mark.needs("podman")
async def test_a_container_is_made_and_every_part_is_looked_at(podman):
    checks = {check.name: check for check in await adjust.probe(podman)}
    assert list(checks) == ["a container", "limits", "storage", "network 'public'", "compose files"]
    assert checks["a container"].ok
    assert checks["a container"].detail.startswith("worked ")


async def test_an_engine_that_cannot_work_says_why(tmp_path, monkeypatch):
    async def no(_):
        raise SandboxError("podman cannot run a container here: no reason")

    monkeypatch.setattr(adjust, "find", no)
    (check,) = await adjust.probe(Containers(PODMAN, tmp_path))
    assert (check.ok, check.needed) == (False, True)
    assert "no reason" in check.detail


async def test_what_was_adjusted_and_what_is_missing_is_explained(tmp_path, monkeypatch):
    fit = Adjustment(options=("--runtime", "runc"), ulimits=("--ulimit", "nofile=9:9"), limits=("pids",))
    assert adjust.explain(fit) == (
        "worked with --runtime runc, since the usual runtime fails; "
        "with nofile=9:9, since higher limits may not be set"
    )
    assert adjust.explain(Adjustment()) == "worked with the defaults of the engine"
    assert adjust._limits(fit).detail.startswith("memory, cpus cannot be set here")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "slirp4netns is not installed" in adjust._public(Containers(PODMAN, tmp_path)).detail
    assert "install podman-compose" in adjust._compose(PODMAN).detail


@pytest.mark.parametrize("answer", ["vfs", "overlay", None])
async def test_a_slow_storage_driver_is_named(answer, tmp_path, monkeypatch):
    backend = Containers(PODMAN, tmp_path)

    async def ask(*_):
        if answer is None:
            raise SandboxError("podman does not answer")
        return answer

    monkeypatch.setattr(backend, "ask", ask)
    check = await adjust._storage(backend)
    assert check.ok is (answer == "overlay")
    assert "overlay" in check.detail or answer is None

"""Talking to an engine, with a program in its place that answers as podman does."""

from __future__ import annotations

import pytest

from proctor.sandbox.container.engine import ask

pytestmark = pytest.mark.anyio
SAYS = "Error: joining network namespace of container 4d7b: unknown FS magic"


@pytest.fixture
def program(tmp_path):
    """Fails with a message a number of times, then answers; counts how often it was asked."""

    def made(times, message):
        file = tmp_path / "engine"
        file.write_text(
            f"#!/bin/sh\necho x >> {tmp_path}/asked\n"
            f"[ $(wc -l < {tmp_path}/asked) -gt {times} ] && echo found && exit\n"
            f"echo '{message}' >&2; exit 125\n"
        )
        file.chmod(0o755)
        return str(file)

    return made


async def test_a_container_that_is_being_removed_meanwhile_fails_no_question(program):
    said = await ask([program(2, SAYS), "ps"])
    assert (said.code, said.out) == (0, "found\n")


async def test_any_other_failure_is_told_at_once(program, tmp_path):
    said = await ask([program(2, "Error: no such container"), "ps"])
    assert (said.code, said.reason) == (125, "no such container")
    assert (tmp_path / "asked").read_text() == "x\n"

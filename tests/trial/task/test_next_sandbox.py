"""Sandboxes started ahead, on a back end that pretends."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proctor.errors import SandboxError
from proctor.model.plan import PlannedTrial
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.trial.task.next_sandbox import NextSandbox

pytestmark = pytest.mark.anyio


class Place:
    """A sandbox that knows whether it was stopped."""

    def __init__(self) -> None:
        self.alive = True
        self.stopped = False

    async def stop(self) -> None:
        self.stopped = True


class Starter:
    """Starts a place per trial, when it is let."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self.made: dict[str, Place] = {}
        self.error: Exception | None = None

    async def __call__(self, trial: PlannedTrial):
        await self.go.wait()
        if self.error:
            raise self.error
        self.made[trial.key] = Place()
        return request(trial.key, "next"), self.made[trial.key]


def trial(key: str) -> PlannedTrial:
    return PlannedTrial(key=key, index=0, kind="task", subject="t", subject_digest="", body=0)


def request(key: str, suffix: str = "1-1") -> SandboxRequest:
    return SandboxRequest(name=f"run-{suffix}", root=Root(host=True), labels={"trial": key})


async def taking_early(start: Starter) -> tuple[NextSandbox, asyncio.Task]:
    """Somebody who waits for a sandbox that is still being started."""
    start.go.clear()
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    taking = asyncio.create_task(ahead.take("a", request("a")))
    await settle()
    return ahead, taking


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_was_expected_is_taken_once():
    start = Starter()
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    ahead.start_for(trial("a"))
    assert await ahead.take("a", request("a")) is start.made["a"]
    assert await ahead.take("a", request("a")) is None
    await ahead.close()
    assert not start.made["a"].stopped


async def test_nobody_gets_what_was_made_for_another():
    start = Starter()
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    await settle()
    assert await ahead.take("b", request("b")) is None
    await ahead.close()
    assert start.made["a"].stopped


async def test_a_request_that_differs_in_more_than_its_name_gets_its_own():
    start = Starter()
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    other = replace(request("a"), limits=Limits(pids=7))
    assert await ahead.take("a", other) is None
    await ahead.close()
    assert start.made["a"].stopped


async def test_one_that_died_while_it_waited_is_not_given_out():
    start = Starter()
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    await settle()
    start.made["a"].alive = False
    assert await ahead.take("a", request("a")) is None
    await ahead.close()


async def test_what_is_being_taken_is_not_discarded_for_the_next():
    start = Starter()
    ahead, taking = await taking_early(start)
    for key in ("b", "c", "d"):
        ahead.start_for(trial(key))
    start.go.set()
    assert await taking is start.made["a"]
    await ahead.close()
    assert {key for key, place in start.made.items() if not place.stopped} == {"a"}


async def test_of_many_that_nobody_takes_few_are_kept():
    start = Starter()
    ahead = NextSandbox(start)
    for key in "abcd":
        ahead.start_for(trial(key))
        await settle()
    assert [key for key, place in start.made.items() if not place.stopped] == ["c", "d"]
    await ahead.close()
    assert all(place.stopped for place in start.made.values())


async def test_what_goes_wrong_is_left_to_the_trial():
    start = Starter()
    start.error = SandboxError("no room")
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    assert await ahead.take("a", request("a")) is None
    await ahead.close()


async def test_who_is_cancelled_while_it_waits_leaves_nothing_behind():
    start = Starter()
    ahead, taking = await taking_early(start)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    start.go.set()
    await ahead.close()
    assert all(place.stopped for place in start.made.values())


async def test_the_end_does_not_wait_for_one_that_is_still_being_made():
    start = Starter()
    start.go.clear()
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    await settle()
    await ahead.close()
    assert start.made == {}

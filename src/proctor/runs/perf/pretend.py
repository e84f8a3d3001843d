"""Sandboxes that execute nothing, for the cost of the harness alone. Used only when asked for by name."""

from __future__ import annotations

from proctor.sandbox.fake import Fake, FakeCommand, FakeResult

_WORKED = "/tmp/an-agent-worked"  # noqa: S108 - a name in a dictionary, not a file
_SETTING_UP = ("mkdir -p", "/bin/true")
"""What the harness itself runs inside."""


def pretended() -> Fake:
    """Every command succeeds at once; the tests give 1 where an agent ran a command, and 0 otherwise."""
    return Fake(handler=_handle)


def _handle(command: FakeCommand) -> FakeResult:
    if command.argv[-1] == "/tests/test.sh":
        reward = b"1\n" if _WORKED in command.files else b"0\n"
        command.files["/logs/verifier/reward.txt"] = reward
    elif not command.argv[-1].startswith(_SETTING_UP):
        command.files[_WORKED] = b""
    return FakeResult()

"""A back end whose sandboxes cost next to nothing: what is left of a trial is the harness around them.

It plays the task of `task_trials.py`: the solution leaves one file, the tests leave a reward, and the state
that is kept is a tar such as the real back end writes.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from proctor.sandbox.base import SandboxRequest
from proctor.sandbox.choose import BACKENDS, Kind
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult, FakeSandbox


def play(command: FakeCommand) -> FakeResult:
    """What the task's two scripts do."""
    text = " ".join(command.argv)
    if "/solution/solve.sh" in text:
        command.files["/app/hello.txt"] = b"hello\n"
    elif "/tests/test.sh" in text and command.files.get("/app/hello.txt"):
        command.files["/logs/verifier/reward.txt"] = b"1\n"
    return FakeResult()


def state() -> bytes:
    """The changes of a solved task."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        folder, file = tarfile.TarInfo("./app"), tarfile.TarInfo("./app/hello.txt")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(folder)
        file.size = len(b"hello\n")
        archive.addfile(file, io.BytesIO(b"hello\n"))
    return made.getvalue()


STATE = state()


class FreeSandbox(FakeSandbox):
    """One that also keeps its state, as the real ones do."""

    async def save_state(self, target: Path, *, max_bytes: int) -> bool:
        """Write it; it is never too large."""
        del max_bytes
        target.write_bytes(STATE)
        return True


class Free(Fake):
    """The back end; it remembers none of its sandboxes."""

    def sandbox(self, request: SandboxRequest) -> FreeSandbox:
        return FreeSandbox(self, request)


def install() -> str:
    """Make it known; the name under which a spec asks for it."""
    images = BACKENDS["fake"].images
    BACKENDS["fake"] = Kind(open=lambda *_: Free(handler=play), obstacle=lambda: "", images=images)
    return "fake"

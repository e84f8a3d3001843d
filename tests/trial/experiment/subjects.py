"""Experiments that behave badly in every way we know, for the tests beside this file."""

import ctypes
import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

from proctor import Experiment, ExperimentContext, Instrument, register_experiment, register_instrument

SLEEP = os.environ.get("PROCTOR_TEST_SLEEP", "600")
"""Seconds; by a number of its own a test knows its sleepers from those of others."""


@register_experiment("subject")
class Subject(Experiment):
    """Does what its parameter says; unless that happens at the start, the first two calls are fine."""

    def __init__(self, what: str = "nothing", log: str = "") -> None:
        self.what = what
        self.log = log
        if what == "raise_in_constructor":
            raise ValueError("no such thing")

    def _note(self, word: str) -> None:
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{word}\n")

    def setup(self, context: ExperimentContext) -> None:
        self._note("setup")
        if self.what == "raise_in_setup":
            raise RuntimeError("setup failed")
        if self.what == "hang_in_setup":
            time.sleep(600)

    def teardown(self, context: ExperimentContext) -> None:
        self._note("teardown")
        if self.what.endswith("raise_in_teardown"):
            raise RuntimeError("teardown failed")

    def execute_once(self, context: ExperimentContext) -> dict:
        self._note(f"execute {context.iteration_index}")
        if context.iteration_index != 2:
            return {"index": context.iteration_index}
        return getattr(self, self.what, dict)() or {"index": 2}

    def raise_error(self) -> None:
        raise LookupError("nothing there")

    def raise_and_raise_in_teardown(self) -> None:
        raise LookupError("nothing there")

    def raise_huge(self) -> None:
        raise ValueError("x" * 50_000_000)

    def raise_unprintable(self) -> None:
        class UnprintableError(Exception):
            def __str__(self) -> str:
                raise RuntimeError("not even that")

        raise UnprintableError

    def sys_exit(self) -> None:
        sys.exit(7)

    def os_exit(self) -> None:
        os._exit(7)

    def os_exit_quietly(self) -> None:
        os._exit(0)

    def segfault(self) -> None:
        ctypes.string_at(0)

    def kill_itself(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self) -> None:
        time.sleep(600)

    def hang_in_c(self) -> None:
        (9 ** (10**7)) ** 2

    def hang_with_children(self) -> None:
        subprocess.Popen(["sleep", SLEEP], start_new_session=True)
        self.leave_daemon()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)

    def leave_daemon(self) -> None:
        middle = os.fork()
        if middle == 0:
            os.setsid()
            if os.fork() == 0:
                os.execve("/bin/sleep", ["sleep", SLEEP], {})
            os._exit(0)
        os.waitpid(middle, 0)

    def return_gigabyte(self) -> dict:
        return {"text": "a" * 10**9}

    def return_bytes(self) -> dict:
        return {"deep": {"data": b"abc"}}

    def return_number(self) -> float:
        return 1.5

    def return_cycle(self) -> dict:
        cycle: dict = {}
        cycle["self"] = cycle
        return cycle

    def return_nan(self) -> dict:
        return {"loss": float("nan"), "fine": 1}

    def return_surrogate(self) -> dict:
        return {"text": "a\ud800b"}

    def return_collision(self) -> dict:
        return {"duration_s": 99.0, "nested": {"score": 3}}

    def print_much(self) -> None:
        sys.stdout.write("first words\n")
        sys.stderr.write("an error\n")
        for _ in range(400):
            sys.stdout.write("x" * 65536)
        sys.stdout.write("\nlast words")

    def close_everything(self) -> None:
        os.closerange(3, 256)

    def take_our_descriptors(self) -> None:
        os.closerange(3, 256)
        # Every number that was the harness's belongs to a file of ours now.
        folder = tempfile.gettempdir()
        self.files = [os.open(f"{folder}/{n}", os.O_CREAT | os.O_WRONLY) for n in range(40)]

    def kill_zygote(self) -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)

    def kill_lane(self) -> None:
        os.kill(self._lane(), signal.SIGKILL)
        time.sleep(600)

    def stop_zygote(self) -> None:
        self.leave_daemon()
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(600)

    def _lane(self) -> int:
        status = Path(f"/proc/{os.getppid()}/stat").read_text()
        return int(status.rpartition(")")[2].split()[1])

    def unblock_everything(self) -> None:
        for handle in range(256):
            try:
                os.set_blocking(handle, False)
            except OSError:
                continue

    def return_much(self) -> dict:
        return {"text": "a" * 900_000}

    def fork_and_return(self) -> None:
        os.fork()

    def delete_folders(self) -> None:
        shutil.rmtree(tempfile.gettempdir())
        gone = tempfile.mkdtemp(dir="/tmp")
        os.chdir(gone)
        Path(gone).rmdir()
        sys.stdout.write("still here\n")

    def write_garbage(self) -> None:
        for handle in range(3, 64):
            try:
                os.write(handle, b"\xff\xff\xff\xffgarbage")
            except OSError:
                continue


@register_experiment("counting")
class Counting(Experiment):
    """Short, deterministic work that draws random numbers and says what it saw."""

    total = 0

    def __init__(self, size: int = 10) -> None:
        self.size = size

    def setup(self, context: ExperimentContext) -> None:
        self.draws = [random.random() for _ in range(self.size)]

    def execute_once(self, context: ExperimentContext) -> dict:
        Counting.total += 1
        return {
            "draw": self.draws[0],
            "seed": context.seed,
            "size": self.size,
            "total": Counting.total,
            "gc_enabled": gc.isenabled(),
        }


@register_experiment("writing")
class Writing(Experiment):
    """Leaves files: a result, a link that leads out, a temporary one, and cyclic garbage."""

    def execute_once(self, context: ExperimentContext) -> dict:
        (context.run_dir / "notes.json").write_text("{}")
        if not (context.run_dir / "link").exists():
            (context.run_dir / "link").symlink_to("/etc/passwd")
        handle, name = tempfile.mkstemp()
        os.close(handle)
        for _ in range(3000):
            ring: list = []
            ring.append(ring)
        return {"temporary": name, "instruments": list(context.instruments)}


@register_experiment("spawning")
class Spawning(Experiment):
    """Its work happens in another process."""

    def execute_once(self, context: ExperimentContext) -> dict:
        subprocess.run([sys.executable, "-S", "-c", "sum(range(2_000_000))"], check=True)
        return {}


@register_instrument("loud")
class Loud(Instrument):
    """A custom instrument that rides along."""

    rides_along = True
    defaults: ClassVar = {"volume": 3}

    def __enter__(self):
        self.entered = time.monotonic()
        return self

    def metrics(self):
        return {"volume": self.options["volume"]}

    def close(self):
        return {"closed": True}


@register_instrument("broken")
class Broken(Instrument):
    """A custom instrument that fails in the middle."""

    rides_along = True

    def __exit__(self, *_):
        raise OSError("the needle fell off")

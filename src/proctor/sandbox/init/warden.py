"""One sandbox of the keeper without a compiler: bubblewrap makes it, a warden outside runs commands in it."""

# Names are bytes, or nothing may be imported any more; pathlib serves neither.
# ruff: noqa: PTH102, PTH119, PTH123, PTH208

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from proctor.sandbox.init import kernel
from proctor.sandbox.init.inside import IDS, Bounds, Command, run_command
from proctor.sandbox.init.wire import Message, receive, reply

_STAGE = "/tmp"  # noqa: S108 - covered by a tmpfs of our own before anything is put there
_PAUSE = "/dev/.proctor"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the one inside
_READY_S = 20.0
_LIMITS = {
    "p": resource.RLIMIT_NPROC,
    "z": resource.RLIMIT_FSIZE,
    "m": resource.RLIMIT_DATA,
    "o": resource.RLIMIT_NOFILE,
}
_WANTED = (signal.SIGCHLD, signal.SIGTERM)
"""What a supervisor waits for: the end of a child, or the word to end them all."""
_ENTERED = {
    "net": kernel.NEWNET,
    "ipc": kernel.NEWIPC,
    "uts": kernel.NEWUTS,
    "cgroup": kernel.NEWCGROUP,
    "mnt": kernel.NEWNS,
}


def forked(work: Callable[[], object]) -> int:
    """Run something in a child process that always ends with it; returns the child's process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


class Warden:
    """The process of a sandbox: it holds its namespaces and is the parent of its commands."""

    def __init__(self, request: Message) -> None:
        self._request = request
        fds = iter(request.fds)
        self._control = socket.socket(fileno=next(fds))
        self._filter = os.pread(next(fds), 1 << 16, 0)
        self._cgroups = [next(fds) for _ in range(int(request.one("c", "0")))]
        self._sources = list(fds)
        self._supervisors: dict[int, str] = {}
        self._inner = -1

    def run(self) -> NoReturn:
        """Make the sandbox and serve until its controller hangs up."""
        kernel.die_with_parent()
        try:
            for fd in self._cgroups:
                os.write(fd, b"0")
            binds = self._build()
            self._bubblewrap = self._launch(binds)
            self._enter()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reply(self._control, "e", error)
            os._exit(1)
        reply(self._control, "ready", self._init)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, self._signalled)
        try:
            self._serve()
        finally:
            self._bubblewrap.kill()
            self._bubblewrap.wait()
            os._exit(0)

    def _signalled(self, number: int, frame: object) -> None:
        del frame
        if number == signal.SIGTERM:
            raise SystemExit

    def _build(self) -> list[str]:
        """Stage the layers and the overlay; the read-only binds as arguments for bubblewrap."""
        request, trees = self._request, "T" in self._request.fields
        targets = list(request.all("t"))
        paths = [request.one("d"), *request.all("l"), *request.all("b")]
        names = ["s", *(f"l{n}" for n in range(len(paths) - 1 - len(targets)))]
        binds = [f"b{n}" for n in range(len(targets))]
        kernel.unshare(kernel.NEWNS)
        kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        fds = self._sources if trees else [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in paths]
        kernel.mount("tmpfs", _STAGE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=1m")
        os.chdir(_STAGE)
        for name, fd in zip([*names, *binds], fds, strict=True):
            if Path(f"/proc/self/fd/{fd}").is_dir():
                Path(name).mkdir()
            else:
                Path(name).touch()
            if trees:
                kernel.move_mount(fd, name)
            else:
                kernel.mount(f"/proc/self/fd/{fd}", name, None, kernel.MS_BIND | kernel.MS_REC)
        for name in ("r", "s/upper", "s/work"):
            if not Path(name).is_dir():
                os.mkdir(name, 0o755)
                os.chown(name, 0, 0)
        lower = ":".join(names[1:])
        options = f"userxattr,upperdir=s/upper,workdir=s/work,lowerdir={lower}"
        kernel.mount("overlay", "r", "overlay", kernel.MS_NODEV, options + ",volatile")
        workdir = request.one("w")
        arguments = ["--dir", workdir] if workdir.startswith("/") and workdir != "/" else []
        writable = {f"b{number}" for number in request.all("v")}
        for name, target in zip(binds, targets, strict=True):
            arguments += ["--bind" if name in writable else "--ro-bind", f"{_STAGE}/{name}", target]
        return arguments

    def _launch(self, binds: list[str]) -> subprocess.Popen[bytes]:
        reader, writer = os.pipe()
        filter_fd = os.memfd_create("filter")  # bubblewrap reads from its position: not one that is shared
        os.write(filter_fd, self._filter)
        os.lseek(filter_fd, 0, os.SEEK_SET)
        command = [
            "bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
            "--unshare-cgroup-try", "--hostname", self._request.one("h"), "--die-with-parent",
            "--new-session", "--clearenv",
            "--cap-drop", "ALL", "--bind", f"{_STAGE}/r", "/", *binds, "--proc", "/proc", "--dev", "/dev",
            "--perms", "1777", "--size", self._request.one("s"), "--tmpfs", _SHARED_MEMORY,
            *_pause_arguments(), "--remount-ro", "/dev", "--info-fd", str(writer),
            "--seccomp", str(filter_fd), "--", *_pause_command(),
        ]  # fmt: skip
        process = subprocess.Popen(
            command,
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(writer, filter_fd),
            user=0,
            group=0,
            extra_groups=[],
        )
        os.close(writer)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with contextlib.suppress(OSError):
            process.stdin.write(b"x")
            process.stdin.flush()
        # The program that keeps the sandbox open echoes once everything is mounted.
        if (
            not select.select([process.stdout], [], [], _READY_S)[0]
            or os.read(process.stdout.fileno(), 1) != b"x"
        ):
            process.kill()
            said = process.stderr.read(300).decode(errors="replace").strip()
            raise OSError(f"bubblewrap could not make the sandbox: {said or 'it did not answer'}")
        with os.fdopen(reader, "rb") as info:
            self._init = int(json.loads(info.read())["child-pid"])
        return process

    def _enter(self) -> None:
        """Hold the namespaces; from now on our children are inside its process namespace."""
        folder = f"/proc/{self._init}/ns"
        self._namespaces = [
            (os.open(f"{folder}/{name}", os.O_RDONLY), kind) for name, kind in _ENTERED.items()
        ]

        def open_ports() -> None:
            kernel.setns(self._namespaces[0][0], kernel.NEWNET)
            Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")

        os.waitpid(forked(open_ports), 0)
        self._inner = _inner_namespace()
        pid_namespace = os.open(f"{folder}/pid", os.O_RDONLY)
        kernel.setns(pid_namespace, kernel.NEWPID)
        os.close(pid_namespace)

    def _serve(self) -> None:
        assert self._bubblewrap.stdout is not None
        control, pause = self._control.fileno(), self._bubblewrap.stdout.fileno()
        while True:
            with contextlib.suppress(InterruptedError):
                ready, _, _ = select.select([control, pause], [], [], 0.2)
                if pause in ready:
                    return
                if control in ready:
                    message = receive(self._control)
                    if message is None:
                        return
                    self._handle(message)
                    message.close()
            self._reap()

    def _handle(self, message: Message) -> None:
        ident = message.ident
        if message.kind == "X":
            command = Command(
                ident=ident,
                argv=tuple(message.all("a")),
                env=dict(text.split("=", 1) for text in message.all("e")),
                cwd=message.one("c", "/"),
                user=message.one("u", "root"),
                builtin="b" in message.fields,
                fresh=tuple(message.all("f")),
                targets=tuple(message.all("r")),
            )
            if "q" in message.fields:
                os.waitpid(forked(self._kill_all), 0)
            self._supervisors[forked(lambda: self._supervise(command, message.fds))] = ident
        elif message.kind == "K":
            for pid, name in self._supervisors.items():
                if name == ident:
                    os.kill(pid, signal.SIGTERM)
        elif message.kind == "C":
            os.waitpid(forked(self._kill_all), 0)
            if message.fds:
                with contextlib.suppress(BrokenPipeError):
                    os.write(message.fds[0], b"y")
            else:
                reply(self._control, "c", ident)
        elif message.kind == "L":
            host = "0.0.0.0" if len(message.fields) > 2 else "127.0.0.1"  # noqa: S104 - the inside's own
            os.waitpid(forked(lambda: self._listen(ident, host, int(message.fields[1]))), 0)
        elif message.kind == "U":
            forked(lambda: reply(self._control, "u", ident, *measure(f"{_STAGE}/s/upper")))

    def _reap(self) -> None:
        for pid, ident in list(self._supervisors.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._supervisors[pid]
                if os.waitstatus_to_exitcode(status) != 0:
                    reply(self._control, "d", ident, 137, 1, 0, 0, 0, 0)

    def _go_inside(self) -> None:
        for fd, kind in self._namespaces:
            kernel.setns(fd, kind)

    def _supervise(self, command: Command, fds: list[int]) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _WANTED)
        kernel.die_with_parent()
        self._go_inside()
        kernel.adopt_orphans()
        bounds = Bounds(
            inner=self._inner,
            capabilities=int(self._request.one("k")),
            filter_bytes=self._filter,
            limits={
                what: int(self._request.one(tag)) for tag, what in _LIMITS.items() if self._request.one(tag)
            },
        )
        with mmap.mmap(-1, 1) as made_ready:
            main = forked(lambda: run_command(command, fds, bounds, lambda: made_ready.write(b"y")))
            code, killed = self._watch(main, fds)
            answer = "d" if killed or made_ready[:] == b"y" else "n"
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_us = int((used.ru_utime + used.ru_stime) * 1e6)
        figures = (cpu_us, used.ru_maxrss, used.ru_inblock, used.ru_oublock)
        reply(self._control, answer, command.ident, code, killed, *figures)

    @staticmethod
    def _watch(main: int, fds: list[int]) -> tuple[int, int]:
        """Wait for a command's end, or for the word to end its whole tree: its code, and whether it was."""
        for fd in fds:
            os.close(fd)
        code, killed = None, 0
        while code is None:
            if signal.sigwaitinfo(_WANTED).si_signo == signal.SIGTERM:
                _kill_children()
                code, killed = 137, 1
            while code is None:
                with contextlib.suppress(ChildProcessError):
                    pid, status = os.waitpid(-1, os.WNOHANG)
                    if pid == main:
                        ended = os.waitstatus_to_exitcode(status)
                        code = ended if ended >= 0 else 128 - ended
                    if pid:
                        continue
                break
        return code, killed

    def _kill_all(self) -> None:
        self._go_inside()
        spared = {1, 2, os.getpid()}
        while others := [pid for pid in _living() if pid not in spared]:
            for pid in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _listen(self, ident: str, host: str, port: int) -> None:
        kernel.setns(self._namespaces[0][0], kernel.NEWNET)
        try:
            with socket.create_server((host, port), backlog=128) as listener:
                socket.send_fds(self._control, [f"l {ident} ok".encode()], [listener.fileno()])
        except OSError as error:
            reply(self._control, "l", ident, error)


def _living() -> Iterator[int]:
    """Processes of this process namespace that are not yet dead."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] not in {"Z", "X"}:
                    yield int(name)


def _kill_children() -> None:
    """Kill the direct children until none is left: the children of the dead come to us."""
    pid = os.getpid()
    while True:
        with contextlib.suppress(OSError), open(f"/proc/self/task/{pid}/children") as listed:
            for each in listed.read().split():
                os.kill(int(each), signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def _inner_namespace() -> int:
    """A user namespace below ours, without the right to make more."""
    ready, tell = os.pipe()
    wait, leave = os.pipe()

    def child() -> None:
        os.close(leave)
        kernel.unshare(kernel.NEWUSER)
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
        os.write(tell, b"y")
        os.read(wait, 1)

    pid = forked(child)
    os.close(tell)
    os.close(wait)
    if os.read(ready, 1) != b"y":
        raise OSError("cannot make the inner user namespace")
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{pid}/{name}").write_text(f"0 0 {IDS}")
    fd = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    os.close(leave)
    os.close(ready)
    os.waitpid(pid, 0)
    return fd


def _libraries() -> dict[str, str]:
    """The loader and the C library of this very process, with which the host's `cat` runs in any image."""
    found = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        name = os.path.basename(path)
        if name.startswith("ld-"):
            found["ld"] = path
        elif name.startswith(("libc.so", "libc-")):
            found["libc.so.6"] = path
    return found


def _pause_arguments() -> list[str]:
    binds = {"cat": "/usr/bin/cat", **_libraries()}
    return [word for name, path in binds.items() for word in ("--ro-bind", path, f"{_PAUSE}/{name}")]


def _pause_command() -> list[str]:
    loader = [f"{_PAUSE}/ld", "--library-path", _PAUSE] if "ld" in _libraries() else []
    return [*loader, f"{_PAUSE}/cat"]


def measure(folder: str) -> tuple[int, int]:
    """Bytes on disk and inodes of a tree."""
    used = inodes = 0
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):
                status = os.lstat(f"{place}/{name}")
                used += status.st_blocks * 512 // (1 if name in folders else max(1, status.st_nlink))
                inodes += 1
    return used, inodes

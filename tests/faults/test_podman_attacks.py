"""What hostile programs try from inside a podman container. Each attack is contained, and says so here."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.faults.inside import MB, fork_bomb, memory_bomb, python, sh

from proctor.errors import SandboxError
from proctor.sandbox.base import Limits, Root, SandboxRequest

pytestmark = [pytest.mark.anyio, pytest.mark.fault, pytest.mark.needs("podman")]
TRIES = 1000 if os.environ.get("PROCTOR_SOAK") else 40


@pytest.fixture
async def start(podman, podman_image):
    async def started(**limits):
        request = SandboxRequest(
            name="t", root=Root(image=podman_image, workdir="/app"), limits=Limits(**limits)
        )
        made = podman.sandbox(request)
        await made.start()
        return made

    return started


async def test_secrets_of_the_host_other_trials_and_the_init_are_out_of_reach(start, tmp_path, monkeypatch):
    monkeypatch.setenv("A_SECRET_OF_THE_CALLER", "s3cret-value")
    monkeypatch.setenv("http_proxy", "http://user:s3cret-value@proxy.example")
    (tmp_path / "secret").write_text("s3cret-value")
    one, two = await asyncio.gather(start(), start())
    await sh(two, "echo s3cret-value > /app/answer; S=s3cret-value setsid sleep 1000 > /dev/null 2>&1 &")
    project = Path(__file__).parents[2]
    for place in (
        project,
        tmp_path,
        tmp_path / "secret",
        "/etc/shadow",
        "/var/lib/containers",
        "/app/answer",
    ):
        assert (await sh(one, f"cat {place} || ls {place}")).exit_code != 0, place
    result = await sh(
        one, "cat /proc/*/environ /proc/*/cmdline; env; ls -A /tmp /root /home; find / -xdev -type s"
    )
    for word in (b"s3cret-value", b"A_SECRET", bytes(project), bytes(tmp_path)):
        assert word not in result.stdout
    for path in ("environ", "root/etc/shadow", "root", "cwd/x", "fd/3", "maps", "mem", "exe"):
        assert (await sh(one, f"cat /proc/1/{path} || ls /proc/1/{path}/")).exit_code != 0, path
    for attempt in ("nsenter -t 1 -m -p true", "chroot /proc/1/root true"):
        assert (await sh(one, attempt)).exit_code != 0, attempt
    assert (await sh(one, "echo x > /run/.proctor/init; touch /run/.proctor/socket/control")).exit_code != 0


async def test_root_inside_cannot_mount_make_namespaces_or_change_the_kernel(start):
    sandbox = await start()
    refused = [
        "mount -t tmpfs none /mnt", "mount --bind / /app", "umount /proc", "mount -o remount,rw /sys",
        "unshare -U true", "unshare -m true", "unshare -n true", "mknod /tmp/a b 254 0", "mknod /tmp/n c 1 3",
        "echo x > /proc/sys/kernel/core_pattern", "echo x > /proc/sys/kernel/hostname",
        "echo 1 > /proc/sysrq-trigger", "cat /dev/vda", "cat /proc/kcore | head -c 1 | grep .",
        "date -s 2001-01-01", "echo -1000 > /proc/1/oom_score_adj", "mkdir /sys/fs/cgroup/memory/x",
        "echo 99999 > /sys/fs/cgroup/pids/pids.max",
    ]  # fmt: skip
    for attempt in refused:
        assert (await sh(sandbox, attempt)).exit_code != 0, attempt


async def test_the_init_cannot_be_killed_stopped_or_traced_and_a_killed_supervisor_frees_nobody(start):
    sandbox = await start()
    result = await python(
        sandbox,
        """
        import ctypes, os, signal
        libc = ctypes.CDLL(None, use_errno=True)
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGHUP):
            os.kill(1, number)
        print(libc.ptrace(16, 1, 0, 0), libc.ptrace(16, os.getppid(), 0, 0))
        """,
    )
    assert result.stdout == b"-1 -1\n"
    assert (await sandbox.exec(["true"])).exit_code == 0
    killed = await sh(sandbox, "kill -9 $PPID; sleep 1000")
    assert killed.exit_code == 137
    stopped = await sh(sandbox, "kill -STOP $PPID; sleep 1000", timeout_s=0.5)
    assert stopped.exit_code == 137
    await sandbox.end_processes()
    assert int((await sh(sandbox, "ls -d /proc/[0-9]* | wc -l")).stdout) < 8
    assert (await sh(sandbox, "kill -9 -1")).exit_code in {0, 1, 137}
    assert (await sandbox.exec(["true"])).exit_code == 0


async def test_doors_of_the_kernel_are_shut_and_no_terminal_can_be_written_to(start):
    sandbox = await start()
    result = await python(
        sandbox,
        """
        import ctypes, errno, fcntl, os, pty, socket
        libc = ctypes.CDLL(None, use_errno=True)
        for family in (40, 38, 17, 31):
            try:
                socket.socket(family, socket.SOCK_STREAM if family == 40 else socket.SOCK_RAW)
                print('family', family)
            except OSError:
                pass
        if os.uname().machine == 'x86_64':
            for name, number in dict(io_uring_setup=425, add_key=248, keyctl=250, request_key=249, bpf=321,
                                     perf_event_open=298, userfaultfd=323, mount=165, setns=308).items():
                ctypes.set_errno(0)
                value = libc.syscall(number, 0, 0, 0, 0, 0)
                if value != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
                    print(name, value, ctypes.get_errno())
        master, slave = pty.openpty()
        for request in (0x5412, 0x541C):
            try:
                fcntl.ioctl(slave, request, b'x')
                print('ioctl', request)
            except OSError as error:
                if error.errno != errno.EPERM:
                    print('ioctl', request, error)
        print(len(os.listdir('/proc/self/fd')) <= 6)
        """,
    )
    assert result.stdout == b"True\n", result
    assert (await sh(sandbox, "echo x > /dev/tty")).exit_code != 0


async def test_a_left_over_set_user_id_program_gives_nothing(start):
    sandbox = await start()
    assert (await sh(sandbox, "left-over -u", user="tester")).stdout == b"1000\n"
    await sh(sandbox, "cp /usr/bin/id /tmp/id; chmod 6755 /tmp/id")
    result = await sh(sandbox, "/tmp/id -u; grep CapEff /proc/self/status", user="tester")
    assert result.stdout == b"1000\nCapEff:\t0000000000000000\n"


async def test_a_fork_bomb_is_bounded_and_ends_with_its_time(start):
    sandbox = await start(pids=60)
    await fork_bomb(sandbox)


async def test_a_memory_bomb_is_ended_and_told_from_a_crash(start, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    sandbox = await start(memory_bytes=64 * MB)
    await memory_bomb(sandbox)
    await sandbox.stop()
    assert not any((tmp_path / "work").iterdir())


async def test_a_disk_filler_is_ended_also_through_the_files_it_was_given(start):
    sandbox = await start(storage_bytes=50 * MB)
    if not sandbox.info().enforced["storage"].startswith("watched"):
        pytest.skip("the changes of a container cannot be measured here")
    shared = await sh(
        sandbox, "head -c 100000000 /dev/zero > /dev/shm/f; stat -c %s /dev/shm/f; rm /dev/shm/f"
    )
    assert int(shared.stdout) <= 64 * MB
    script = """
        head -c 30000000 /dev/zero >> /etc/hosts
        i=0; while :; do i=$((i+1)); head -c 10000000 /dev/zero > /app/f$i || sleep 0.1; done
    """
    result = await sh(sandbox, script, timeout_s=50)
    assert not result.timed_out
    assert "storage limit" in sandbox.info().ledger["storage_exceeded"]
    assert (await sh(sandbox, "head -c 70000000 /dev/zero > /app/one")).exit_code != 0


async def test_huge_output_takes_no_memory_of_the_controller(start):
    sandbox = await start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await sh(sandbox, "yes | head -c 30000000; echo end", keep_bytes=1000)
    assert result.stdout.endswith(b"end\n")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000


async def test_links_and_devices_lead_neither_in_nor_out(start, tmp_path):
    sandbox = await start()
    host = tmp_path / "host"
    host.mkdir()
    (host / "file").write_text("of the host")
    await sh(
        sandbox,
        f"""
        mkdir -p /app/out /app/in; cd /app/out; echo good > good; ln -s /etc/passwd link; ln -s {host} dir
        mkfifo fifo; ln good hard; echo x > set; chmod 6777 set; truncate -s 1T sparse
        python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('sock')"
        ln -s {host}/file reward.txt; ln -s {host}/file /app/in/test.sh
        """,
    )
    found = await sandbox.download("/app/out", tmp_path / "out", max_bytes=10 * MB)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["good", "hard", "set"]
    assert {"link", "dir", "fifo", "sock", "sparse", "reward.txt"} <= set(found.dropped)
    assert (tmp_path / "out/set").stat().st_mode & 0o7000 == 0
    (tmp_path / "up").mkdir()
    (tmp_path / "up/test.sh").write_text("new")
    os.mkfifo(tmp_path / "up/fifo")
    await sandbox.upload(tmp_path / "up", "/app/in")
    assert (host / "file").read_text() == "of the host"
    assert (await sh(sandbox, "cat /app/in/test.sh; test -e /app/in/fifo")).exit_code != 0
    with pytest.raises(SandboxError, match="upload to /proc"):
        await sandbox.upload(tmp_path / "up", "/proc/x")


async def test_a_reward_cannot_be_written_early_or_from_the_background(start):
    """Each try leaves writers in sessions of their own; none may write once the processes were ended."""
    sandbox = await start(pids=200)
    writer = "while :; do mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; done"
    leave = f"for i in 1 2 3 4 5; do setsid sh -c '{writer}' > /dev/null 2>&1 & done"
    forged = 0
    for _ in range(TRIES):
        await sh(sandbox, leave)
        await sandbox.end_processes(fresh=["/logs/verifier", "/tests"])
        found = await sh(sandbox, "ls -A /logs/verifier; ls -d /proc/[0-9]* | wc -l")
        forged += b"reward" in found.stdout or int(found.stdout) > 8
    assert forged == 0


USER_SCRIPT = """
import asyncio, subprocess, sys
from pathlib import Path
from proctor.sandbox.base import *
from proctor.sandbox.container.backend import Containers
from proctor.sandbox.container.engine import PODMAN

async def main():
    image = subprocess.check_output([sys.executable, sys.argv[1], "podman"], text=True).strip()
    backend = Containers(PODMAN, Path.home() / ".proctor")
    root = Root(image=image, workdir="/app")
    limits = Limits(pids=40, memory_bytes=1 << 27, storage_bytes=1 << 26)
    sandbox = backend.sandbox(SandboxRequest(name="u", root=root, limits=limits))
    await sandbox.start()
    run = lambda script, **more: sandbox.exec(["sh", "-c", script], timeout_s=60, **more)
    assert (await run("id -u; touch f; chown 33:33 f; stat -c %u f")).stdout == b"0\\n33\\n"
    for attempt in ("cat /proc/1/environ", "ls " + str(Path.home()), "cat /etc/shadow", "mknod n b 254 0"):
        assert (await run(attempt)).exit_code, attempt
    assert (await sandbox.exec(["python3", "-c", "x = bytearray(300_000_000)"])).exit_code
    bomb = await run("for i in $(seq 100); do sleep 60 & done; sleep 60")
    assert bomb.exit_code, bomb
    assert (await run("head -c 100000000 /dev/zero > big")).exit_code
    await sandbox.end_processes(fresh=["/tests"])
    Path(Path.home() / "f").write_text("up")
    await sandbox.upload(Path.home() / "f", "/tests/f")
    await sandbox.download("/tests", Path.home() / "down")
    assert (Path.home() / "down/f").read_text() == "up"
    assert sandbox.info().enforced["storage"].startswith("watched"), sandbox.info()
    await backend.close()
    left = subprocess.check_output(["podman", "ps", "-aq"])
    subprocess.run(["podman", "system", "reset", "--force"], check=True, capture_output=True)
    print("fine" if left == b"" else left)

asyncio.run(main())
"""


@pytest.mark.needs("root")
async def test_it_works_for_an_ordinary_user(ordinary_user):
    project = Path(__file__).parents[2]
    storage = Path(f"/home/{ordinary_user}/.config/containers/storage.conf")
    storage.parent.mkdir(parents=True)
    for folder in storage.parents[:2]:
        shutil.chown(folder, ordinary_user)  # podman writes there too
    storage.write_text('[storage]\ndriver = "overlay"\n')
    command = [
        "runuser", "-u", ordinary_user, "--", "env", "-i", f"HOME=/home/{ordinary_user}",
        "PATH=/usr/sbin:/usr/bin:/bin", f"PYTHONPATH={project}/src", "PYTHONDONTWRITEBYTECODE=1",
        "/usr/bin/python3", "-c", USER_SCRIPT, f"{project}/scripts/host_image.py",
    ]  # fmt: skip
    run = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=f"/home/{ordinary_user}"
    )
    async with asyncio.timeout(200):
        said, _ = await run.communicate()
    assert said.decode().endswith("fine\n"), said.decode()

"""What hostile programs try from inside a real sandbox. Each attack is contained, and says so here."""

# Scripts for the inside are kept whole, and another process is waited for by looking.
# ruff: noqa: E501

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest
from tests.faults.inside import MB, fork_bomb, memory_bomb, python, sh

from proctor.errors import SandboxError
from proctor.sandbox.base import Limits, Root, SandboxRequest

pytestmark = [pytest.mark.anyio, pytest.mark.fault, pytest.mark.needs("bubblewrap")]


@pytest.fixture
async def start(backend):
    """A started sandbox of the host's system, with limits by keyword."""

    async def started(**limits):
        request = SandboxRequest(name="t", root=Root(host=True, workdir="/app"), limits=Limits(**limits))
        made = backend.sandbox(request)
        await made.start()
        return made

    return started


async def test_nothing_of_the_host_s_files_is_visible(start, tmp_path, monkeypatch):
    monkeypatch.setenv("A_SECRET_OF_THE_CALLER", "s3cret-value")
    secret = tmp_path / "secret"
    secret.write_text("s3cret-value")
    sandbox = await start()
    project = Path(__file__).parents[2]
    places = [
        project,
        Path.home(),
        tmp_path,
        secret,
        "/etc/shadow",
        "/var/log/dpkg.log",
        "/var/lib/dpkg",
        "/srv/x",
    ]
    for place in [place for place in places if str(place) != "/root"]:
        assert (await sh(sandbox, f"cat {place} || ls {place}")).exit_code != 0, place
    assert (await sh(sandbox, "ls -A /root /home")).stdout.split() == [b"/home:", b"/root:"]
    result = await sh(
        sandbox, "cat /proc/*/environ /proc/*/cmdline /proc/mounts /proc/self/mountinfo; env; ls /tmp"
    )
    for word in (b"s3cret-value", b"A_SECRET", bytes(project), bytes(tmp_path)):
        assert word not in result.stdout


async def test_the_init_cannot_be_read_traced_or_entered(start):
    sandbox = await start()
    for path in ("environ", "root/etc/shadow", "root", "cwd/x", "fd/3", "maps", "mem", "exe"):
        assert (await sh(sandbox, f"cat /proc/1/{path} || ls /proc/1/{path}/")).exit_code != 0, path
    traced = await python(
        sandbox,
        """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        me = os.getppid() and os.getpid()
        for pid in [int(name) for name in os.listdir('/proc') if name.isdigit() and int(name) != me]:
            print(pid, open(f'/proc/{pid}/comm').read().strip(), libc.ptrace(16, pid, 0, 0), ctypes.get_errno())
        """,
    )
    lines = [line.split() for line in traced.stdout.decode().splitlines()]
    assert lines
    assert all(line[-2] == "-1" for line in lines), lines
    assert (await sh(sandbox, "nsenter -t 1 -m -p true")).exit_code != 0


async def test_the_init_and_the_supervisor_cannot_be_killed_or_stopped(start):
    sandbox = await start()
    result = await python(
        sandbox,
        """
        import os, signal
        me = os.getpid()
        for pid in [int(name) for name in os.listdir('/proc') if name.isdigit() and int(name) != me]:
            for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGHUP):
                try:
                    os.kill(pid, number)
                    print('killed', pid, open(f'/proc/{pid}/comm').read())
                except PermissionError:
                    pass
        print('done')
        """,
    )
    assert result.stdout == b"done\n"
    assert (await sh(sandbox, "kill -9 -1")).exit_code in {0, 1, 137}
    assert (await sandbox.exec(["true"])).exit_code == 0


async def test_root_inside_cannot_mount_make_namespaces_or_change_the_kernel(start):
    sandbox = await start()
    refused = [
        "mount -t tmpfs none /mnt", "mount --bind / /mnt", "umount /proc", "umount /usr", "mount -o remount,rw /usr",
        "unshare -U true", "unshare -m true", "unshare -Urm true", "unshare -n true",
        "echo x > /proc/sys/kernel/core_pattern", "echo x > /proc/sys/kernel/hostname", "echo 1 > /proc/sysrq-trigger",
        "echo x > /usr/bin/true", "touch /usr/x", "mknod /tmp/sda b 254 0 && cat /tmp/sda", "cat /dev/vda",
        "cat /proc/kcore | head -c 1 | grep .", "dmesg", "date -s 2001-01-01", "chroot /proc/1/root true",
        "hostname other", "ip link add dummy0 type dummy", "swapoff -a && false", "insmod /x",
        "echo -1000 > /proc/1/oom_score_adj", "echo -1 > /proc/self/oom_score_adj",
    ]  # fmt: skip
    for attempt in refused:
        assert (await sh(sandbox, attempt)).exit_code != 0, attempt


async def test_doors_of_the_kernel_are_shut_by_the_filter(start):
    sandbox = await start()
    result = await python(
        sandbox,
        """
        import ctypes, errno, fcntl, os, pty, socket
        libc = ctypes.CDLL(None, use_errno=True)
        def call(*arguments):
            ctypes.set_errno(0)
            return libc.syscall(*arguments), errno.errorcode.get(ctypes.get_errno())
        for family in (40, 38, 17, 31):
            try:
                socket.socket(family, socket.SOCK_STREAM if family == 40 else socket.SOCK_RAW)
                print('family', family, 'open')
            except OSError as error:
                pass
        if os.uname().machine == 'x86_64':
            for name, number in dict(io_uring_setup=425, add_key=248, keyctl=250, request_key=249, bpf=321,
                                     perf_event_open=298, userfaultfd=323, mount=165, setns=308,
                                     open_by_handle_at=304, clone3=435, x32_getpid=0x40000027).items():
                value, code = call(number, 0, 0, 0, 0, 0)
                if value != -1 or code not in ('EPERM', 'ENOSYS'):
                    print(name, value, code)
            value, code = call(272, 0x10000000)
            if value != -1:
                print('unshare', value)
        master, slave = pty.openpty()
        for request in (0x5412, 0x541C):
            try:
                fcntl.ioctl(slave, request, b'x')
                print('ioctl', request)
            except OSError as error:
                if error.errno != errno.EPERM:
                    print('ioctl', request, error)
        print('done')
        """,
    )
    assert result.stdout == b"done\n", result


async def test_accounts_that_are_no_file_do_not_hold_up_a_command(start):
    sandbox = await start()
    for trick in ("mkfifo /etc/passwd", "ln -s /dev/zero /etc/passwd", "mkdir /etc/passwd"):
        await sh(sandbox, f"rm -rf /etc/passwd; {trick}")
        assert (await sandbox.exec(["true"], timeout_s=30)).exit_code == 0
        assert (await sandbox.exec(["true"], user="user", timeout_s=30)).exit_code == 127


async def test_there_is_no_terminal_of_the_caller_to_write_to(start):
    sandbox = await start()
    result = await sh(sandbox, "echo x > /dev/tty; tty; ps -o sid= -p $$; echo $$; ls /proc/self/fd | wc -l")
    lines = result.stdout.split()
    assert b"not" in lines[0]
    assert lines[-3] == lines[-2], "it leads its own session"
    assert int(lines[-1]) <= 4


async def test_no_network_means_none_not_even_abstract_sockets_of_the_host(start):
    sandbox = await start()
    name = f"\0proctor-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket() as tcp:
        abstract.bind(name)
        abstract.listen()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        result = await python(
            sandbox,
            f"""
            import socket
            for family, address in ((socket.AF_UNIX, {name!r}), (socket.AF_INET, ('127.0.0.1', {tcp.getsockname()[1]})),
                                    (socket.AF_INET, ('1.1.1.1', 53)), (socket.AF_INET, ('10.0.2.2', 80)),
                                    (socket.AF_INET, ('169.254.169.254', 80)), (socket.AF_INET6, ('::1', 22))):
                try:
                    with socket.socket(family) as connection:
                        connection.settimeout(2)
                        connection.connect(address)
                    print('connected', address)
                except OSError:
                    pass
            print([name for _, name in socket.if_nameindex()])
            """,
        )
    assert result.stdout == b"['lo']\n"
    assert (await sh(sandbox, "find / -xdev -type s 2>/dev/null")).stdout == b""


async def test_a_fork_bomb_is_bounded_and_ends_with_its_time(start):
    sandbox = await start(pids=60)
    await fork_bomb(sandbox)


async def test_a_fork_bomb_that_detaches_itself_ends_with_the_sandbox(start):
    sandbox = await start(pids=60)
    await sh(
        sandbox, "f() { while :; do setsid sh -c 'sleep 9 & sleep 9' & done; }; f & sleep 100", timeout_s=1
    )
    pid = sandbox.init_pid
    await sandbox.stop()
    assert not Path(f"/proc/{pid}").exists()


async def test_a_memory_bomb_is_ended_and_told_from_a_crash(start):
    sandbox = await start(memory_bytes=64 * MB)
    await memory_bomb(sandbox)


async def test_shared_memory_and_devices_are_small(start):
    sandbox = await start(memory_bytes=512 * MB)
    for place in ("/dev/shm/f", "/dev/f"):
        result = await sh(
            sandbox, f"head -c 200000000 /dev/zero > {place}; s=$?; stat -c %s {place}; exit $s"
        )
        assert result.exit_code != 0
        assert int(result.stdout or 0) <= 64 * MB


async def test_a_disk_filler_is_ended(start):
    sandbox = await start(storage_bytes=50 * MB)
    script = "i=0; while :; do i=$((i+1)); head -c 20000000 /dev/zero > /app/f$i || sleep 0.1; done"
    result = await sh(sandbox, script, timeout_s=50)
    assert not result.timed_out
    assert "storage limit" in sandbox.info().ledger["storage_exceeded"]
    one = await sh(sandbox, "head -c 70000000 /dev/zero > /app/one")
    assert one.exit_code != 0
    await sandbox.stop()


async def test_huge_output_takes_no_memory_and_little_of_the_controller(start):
    sandbox = await start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await sh(sandbox, "yes | head -c 60000000; echo end", keep_bytes=1000)
    assert result.stdout.endswith(b"end\n")
    flood = await sh(sandbox, "cat /dev/zero", timeout_s=2, keep_bytes=1000)
    assert flood.timed_out
    assert len(flood.stdout) == 1000
    assert sandbox.info().ledger["output_paused_s"] > 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000


async def test_links_and_devices_never_come_out(start, tmp_path):
    sandbox = await start()
    (tmp_path / "host").mkdir()
    (tmp_path / "host/file").write_text("of the host")
    script = f"""
        mkdir -p /app/out/sub; cd /app/out; echo good > good; ln -s /etc/passwd link; ln -s {tmp_path}/host dir
        mkfifo fifo; mknod null c 1 3; ln good hard; echo x > set; chmod 6777 set; chmod 777 good
        python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('sock')"; echo deep > sub/deep
        truncate -s 1T sparse; echo name > "$(printf 'a\\377b')"; ln -s {tmp_path}/host/file reward.txt
    """
    await sh(sandbox, script)
    found = await sandbox.download("/app/out", tmp_path / "out", max_bytes=10 * MB)
    plain = sorted(os.fsencode(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*"))
    assert plain == [b"a\xffb", b"good", b"hard", b"set", b"sub", b"sub/deep"]
    assert all(path.is_dir() or path.is_file() for path in (tmp_path / "out").rglob("*"))
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))
    assert (tmp_path / "out/set").stat().st_mode & 0o7000 == 0
    assert (tmp_path / "out/good").stat().st_mode & 0o022 == 0
    assert {"link", "dir", "fifo", "sock", "sparse", "reward.txt"} <= set(found.dropped)
    for name in ("reward.txt", "fifo"):
        found = await sandbox.download(f"/app/out/{name}", tmp_path / "one")
        assert (found.files, found.dropped_count) == (0, 1)
        assert not (tmp_path / "one").exists()
    with pytest.raises(FileNotFoundError):
        await sandbox.download("/app/missing", tmp_path / "one")


async def test_links_inside_do_not_lead_an_upload_out(start, tmp_path):
    sandbox = await start()
    target = tmp_path / "target"
    target.write_text("of the host")
    (tmp_path / "up/sub").mkdir(parents=True)
    (tmp_path / "up/test.sh").write_text("new")
    (tmp_path / "up/sub/f").write_text("f")
    (tmp_path / "up/test.sh").chmod(0o4755)
    (tmp_path / "up/shadow").symlink_to("/etc/shadow")
    os.mkfifo(tmp_path / "up/fifo")
    await sh(
        sandbox,
        f"mkdir -p /app/in; ln -s {target} /app/in/test.sh; ln -s /etc /app/in/sub; mkdir /app/in/shadow2",
    )
    await sandbox.upload(tmp_path / "up", "/app/in")
    assert target.read_text() == "of the host"
    assert (await sh(sandbox, "cat /app/in/test.sh; stat -c %a /app/in/test.sh")).stdout == b"new755\n"
    assert (await sh(sandbox, "test -L /app/in/shadow; cat /app/in/shadow")).exit_code != 0
    assert (await sh(sandbox, "test -e /app/in/fifo")).exit_code != 0
    with pytest.raises(SandboxError, match="absolute"):
        await sandbox.upload(tmp_path / "up", "relative")
    with pytest.raises(SandboxError, match="upload to /proc"):
        await sandbox.upload(tmp_path / "up", "/proc/x")


async def test_a_program_with_a_set_user_id_bit_gains_nothing_outside(start, backend, tmp_path):
    sandbox = await start()
    await sh(sandbox, "cp /usr/bin/id /tmp/id; chmod 6755 /tmp/id; chown root /tmp/id; chmod 6755 /tmp/id")
    result = await sh(sandbox, "/tmp/id -u; grep CapEff /proc/self/status", user="user")
    assert b"CapEff:\t0000000000000000" in result.stdout
    uppers = list(backend.folder.glob("*/upper/tmp/id"))
    assert uppers
    assert all(path.stat().st_uid not in {0, os.getuid()} for path in uppers)
    assert (
        tmp_path / "home/sandboxes"
    ).stat().st_mode & 0o077 == 0 or backend.folder.stat().st_mode & 0o077 == 0


async def test_a_file_capability_or_user_change_does_not_bring_capabilities_back(start):
    sandbox = await start()
    result = await python(
        sandbox,
        """
        import ctypes, os
        libc = ctypes.CDLL(None)
        held = [line for line in open('/proc/self/status') if line.startswith('Cap')]
        print(int(held[1].split()[1], 16) >> 21 & 1, int(held[3].split()[1], 16) >> 21 & 1)
        """,
    )
    assert result.stdout == b"0 0\n"


async def test_a_deep_tree_and_many_files_are_removed(start, backend):
    sandbox = await start()
    await python(
        sandbox,
        """
        import os
        os.chdir('/app')
        for _ in range(3000):
            os.mkdir('d'); os.chdir('d')
        os.chdir('/app')
        for n in range(3000):
            open(f'f{n}', 'w').close()
        os.mkdir('locked'); open('locked/x', 'w').close(); os.chmod('locked', 0)
        """,
    )
    await sandbox.stop()
    assert list(backend.folder.glob("*/*")) == []


async def test_a_download_whose_writer_lies_is_refused(start, tmp_path):
    """The process that sends runs inside, so root there could make it say anything."""
    from proctor.sandbox.transfer import _ENTRY, Unpacker

    for path in (b"../evil", b"/etc/evil", b"a/../../evil", b"a//b", b"a\0b", b"."):
        unpacker = Unpacker(tmp_path / "out", 1000)
        unpacker.feed(_ENTRY.pack(b"F", 0o644, 0, 4, len(path)) + path + b"evil")
        assert unpacker.error
    unpacker = Unpacker(tmp_path / "out", 1000)
    unpacker.feed(_ENTRY.pack(b"L", 0, 0, 4, 1) + b"l/etc")
    assert "unknown kind" in unpacker.error
    assert not (tmp_path / "evil").exists()

"""Real sandboxes, made by the keeper."""

# Scripts for the inside are kept whole, and a process there is waited for by looking.
# ruff: noqa: ASYNC110, E501

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from proctor.errors import SandboxError
from proctor.processes import start_ticks
from proctor.sandbox.base import Root, end_processes

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]


async def sh(sandbox, script, **options):
    return await sandbox.exec(["sh", "-c", script], **options)


async def text(sandbox, script, **options):
    result = await sh(sandbox, script, **options)
    assert result.exit_code == 0, result
    return result.stdout.decode().strip()


async def test_a_command_runs_as_root_in_its_folder_with_an_empty_environment(sandbox):
    assert await text(sandbox, "id -u; pwd") == "0\n/app"
    names = {line.split("=")[0] for line in (await text(sandbox, "env")).splitlines()}
    assert names == {"PATH", "HOME", "PWD"}


async def test_exit_codes_output_and_usage_are_reported(sandbox):
    result = await sh(sandbox, "echo out; echo err >&2; exit 7")
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"out\n", b"err\n")
    assert result.wall_s > 0
    assert result.peak_memory_bytes > 100_000
    assert (await sh(sandbox, "kill -TERM $$")).exit_code == 128 + 15


async def test_ctrl_c_works_inside_also_when_proctor_was_started_in_the_background(make):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sandbox = make()
        await sandbox.start()
        assert (await sh(sandbox, "kill -INT $$; echo lived on")).exit_code == 128 + 2
        await sandbox.stop()
    finally:
        signal.signal(signal.SIGINT, before)


async def test_a_missing_program_and_a_missing_folder_are_the_inside_s_errors(sandbox):
    missing = await sandbox.exec(["no-such-program"])
    assert missing.exit_code == 127
    assert b"no-such-program" in missing.stderr
    assert (await sandbox.exec(["true"], cwd="/no/such")).exit_code in {126, 127}
    assert (await sandbox.exec(["/etc/passwd"])).exit_code == 126
    assert (await sandbox.exec(["true"], user="no-such-user")).exit_code == 127


async def test_input_environment_folder_and_user_are_honoured(sandbox):
    assert await text(sandbox, "cat", stdin=b"abc") == "abc"
    assert await text(sandbox, "wc -c", stdin=b"x" * 300_000) == "300000"
    assert await text(sandbox, "cat") == ""
    assert await text(sandbox, "echo $A", env={"A": "b c"}) == "b c"
    assert await text(sandbox, "pwd", cwd="/var/tmp") == "/var/tmp"
    assert await text(sandbox, "id -u; id -g; echo $HOME", user="user") == "1000\n1000\n/home/user"
    assert await text(sandbox, "id -u; id -g", user="1234:55") == "1234\n55"
    assert await text(sandbox, "id -u; id -g", user="nobody:www-data") == "65534\n33"


async def test_a_large_environment_arrives_whole(sandbox):
    value = "v" * 100_000
    assert await text(sandbox, 'printf %s "$A$B" | wc -c', env={"A": value, "B": value}) == "200000"


async def test_output_streams_while_the_command_runs(sandbox):
    seen = asyncio.Event()
    pieces = []

    def take(stream, data):
        pieces.append((stream, data))
        seen.set()

    running = asyncio.ensure_future(
        sh(sandbox, "echo first; read x", stdin=None, on_output=take, timeout_s=20)
    )
    await asyncio.wait_for(seen.wait(), 20)
    result = await running
    assert pieces[0] == ("stdout", b"first\n")
    assert result.stdout == b"first\n"


async def test_the_end_of_long_output_is_kept_and_all_of_it_is_seen(sandbox):
    seen = 0

    def take(stream, data):
        nonlocal seen
        seen += len(data)

    result = await sh(sandbox, "head -c 3000000 /dev/zero; echo end", on_output=take, keep_bytes=1000)
    assert seen == 3_000_004
    assert len(result.stdout) == 1000
    assert result.stdout.endswith(b"end\n")


async def test_a_time_limit_ends_the_whole_tree_and_spares_earlier_daemons(sandbox):
    await sh(sandbox, "setsid sleep 1000 >/dev/null 2>&1 &")
    script = "sleep 2000 & setsid sleep 2001 & (setsid sh -c 'sleep 2002 & sleep 2003' &) ; sleep 2004"
    result = await sh(sandbox, script, timeout_s=0.5)
    assert result.timed_out
    assert result.exit_code == 137
    assert await text(sandbox, "pgrep -a sleep | cut -d' ' -f2-") == "sleep 1000"


async def test_a_cancelled_command_is_ended(sandbox):
    running = asyncio.ensure_future(sh(sandbox, "touch /app/begun; sleep 3000"))
    while (await sh(sandbox, "test -e /app/begun")).exit_code:
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(20):
        while (await sh(sandbox, "pgrep sleep")).exit_code == 0:
            await asyncio.sleep(0.01)


async def test_a_daemon_that_keeps_its_output_does_not_hold_up_the_command(sandbox):
    result = await sh(sandbox, "(while echo tick; do sleep 0.05; done) & echo done", timeout_s=20)
    assert not result.timed_out
    assert b"done" in result.stdout
    assert (await sh(sandbox, "sleep 0.2; pgrep -f 'echo tick'")).exit_code == 0


@pytest.mark.needs("tmux")
async def test_tmux_survives_between_commands(sandbox):
    await sh(sandbox, "tmux new-session -d -s main", timeout_s=20)
    await sh(
        sandbox,
        "tmux send-keys -t main 'echo $((40+2)) > /app/answer; tmux wait -S ready' Enter; tmux wait ready",
        timeout_s=20,
    )
    assert await text(sandbox, "cat /app/answer") == "42"


async def test_commands_run_at_the_same_time(sandbox):
    waiting = asyncio.ensure_future(
        sh(sandbox, "while ! test -e /app/go; do sleep 0.01; done; echo went", timeout_s=20)
    )
    await sh(sandbox, "touch /app/go")
    assert (await waiting).stdout == b"went\n"


async def test_ids_can_be_changed_and_files_owned_by_others(sandbox):
    await text(sandbox, "touch /app/f; chown 65533:12 /app/f")
    assert await text(sandbox, "stat -c %u:%g /app/f") == "65533:12"
    assert await text(sandbox, "touch /tmp/mine; stat -c %U /tmp/mine", user="user") == "user"


async def test_ordinary_work_is_possible(sandbox):
    await text(
        sandbox,
        "cd /app && git init -q . && git config user.email a@b && git config user.name a && "
        "echo x > f && git add f && git commit -qm one && git log --oneline | wc -l",
    )
    source = "int main(){return 42;}"
    assert (
        await sh(sandbox, "cd /app && cat > a.c && cc -o a a.c && ./a", stdin=source.encode())
    ).exit_code == 42
    assert (
        await text(
            sandbox,
            "python3 -c 'import threading,subprocess,multiprocessing as m;print(m.Pool(2).map(abs,[-1,-2]))'",
        )
        == "[1, 2]"
    )
    assert (
        await text(sandbox, "mkfifo /tmp/p; echo hi > /tmp/p & cat /tmp/p; ls /dev/pts /dev/shm > /dev/null")
        == "hi"
    )


async def test_layers_are_stacked_and_none_is_changed(make, backend, tmp_path):
    for number in (1, 2):
        layer = tmp_path / f"layer{number}" / "app"
        layer.mkdir(parents=True)
        (layer / "who").write_text(f"{number}")
        (layer / f"only{number}").write_text("")
        await backend.give_to_root(layer.parent)
    root = Root(layers=(tmp_path / "layer1", tmp_path / "layer2"), host=True, workdir="/app/new/deep")
    sandbox = make(root)
    await sandbox.start()
    assert await text(sandbox, "pwd; cat /app/who; ls /app") == "/app/new/deep\n2new\nonly1\nonly2\nwho"
    await text(sandbox, "rm /app/only1; rm /app/who; echo x > /app/who")
    await sandbox.stop()
    assert (tmp_path / "layer2/app/who").read_text() == "2"
    assert (tmp_path / "layer1/app/only1").exists()


async def test_a_root_without_a_shell_or_libraries_works(make, tmp_path):
    program = Path("/usr/sbin/ldconfig")
    if not program.exists():
        pytest.skip("no static program at hand")
    (tmp_path / "image/bin").mkdir(parents=True)
    shutil.copy(program, tmp_path / "image/bin/program")
    (tmp_path / "image/link").symlink_to("/proc")
    sandbox = make(Root(layers=(tmp_path / "image",), workdir="/place"))
    await sandbox.start()
    result = await sandbox.exec(["/bin/program", "--version"])
    assert b"ldconfig" in result.stdout
    (tmp_path / "f").write_text("data")
    await sandbox.upload(tmp_path / "f", "/place/f")
    await sandbox.download("/place", tmp_path / "out")
    assert (tmp_path / "out/f").read_text() == "data"
    await sandbox.stop()


async def test_binds_are_visible_and_read_only(make, tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/t").write_text("tool")
    (tmp_path / "one").write_text("file")
    sandbox = make(Root(host=True, binds={"/opt/my/tools": tmp_path / "tools", "/etc/one": tmp_path / "one"}))
    await sandbox.start()
    assert await text(sandbox, "cat /opt/my/tools/t /etc/one") == "toolfile"
    assert (await sh(sandbox, "echo x > /opt/my/tools/t")).exit_code != 0
    assert (await sh(sandbox, "echo x > /etc/one")).exit_code != 0
    await sandbox.stop()


async def test_ending_processes_leaves_the_sandbox_usable_and_the_folders_fresh(sandbox, tmp_path):
    script = "mkdir -p /app/t/x; ln -s /app/t /logs2; mv /logs /old; ln -s /app/t /logs; mkdir -p /app/t/verifier; "
    await sh(sandbox, script + "echo forged > /app/t/verifier/reward.txt; chmod 000 /app/t/verifier")
    running = asyncio.ensure_future(sh(sandbox, "touch /app/begun; sleep 5000"))
    while (await sh(sandbox, "test -e /app/begun")).exit_code:
        await asyncio.sleep(0.01)
    await sh(
        sandbox,
        "ln -s /app/t /tests2; rmdir /tests; ln -s /app/t /tests; setsid sleep 5001 >/dev/null 2>&1 &",
    )
    await end_processes(sandbox, fresh=["/logs/verifier", "/tests", "/deep/er/est"])
    assert (await running).exit_code == 137
    assert (await sh(sandbox, "pgrep sleep")).exit_code == 1
    script = "stat -c '%F %U %a' /logs/verifier /tests /deep/er/est; ls -A /logs/verifier /tests | grep -v :"
    lines = (await sh(sandbox, script)).stdout.decode().strip().splitlines()
    assert lines == ["directory root 777", *["directory root 755"] * 2]
    assert await text(sandbox, "cat /app/t/verifier/reward.txt") == "forged"


async def test_a_sandbox_can_be_used_many_times_but_started_once(sandbox):
    with pytest.raises(SandboxError, match="started before"):
        await sandbox.start()


async def test_a_stopped_sandbox_refuses_work_and_stopping_twice_is_fine(make, backend):
    sandbox = make()
    with pytest.raises(SandboxError, match="not running"):
        await sandbox.exec(["true"])
    await sandbox.start()
    assert len(list(backend.folder.glob("*/"))) == 1
    await asyncio.gather(sandbox.stop(), sandbox.stop())
    with pytest.raises(SandboxError, match="not running"):
        await sandbox.exec(["true"])
    assert list(backend.folder.glob("*/")) == []


async def test_stopping_ends_commands_in_flight_with_an_error(make):
    sandbox = make()
    await sandbox.start()
    running = asyncio.ensure_future(sh(sandbox, "sleep 6000"))
    await sandbox.exec(["true"])
    await sandbox.stop()
    with pytest.raises(SandboxError, match="ended while it was in use"):
        await running


async def test_a_start_that_fails_leaves_nothing_and_says_which_step(make, backend, tmp_path):
    with pytest.raises(SandboxError, match="no layers"):
        await make(Root()).start()
    with pytest.raises(SandboxError, match="does not exist"):
        await make(Root(layers=(tmp_path / "gone",))).start()
    (tmp_path / "layer").mkdir()
    (tmp_path / "layer/app").write_text("a file where a folder must be")
    with pytest.raises(SandboxError, match="/app"):
        await make(Root(layers=(tmp_path / "layer",), workdir="/app/x")).start()
    assert list(backend.folder.glob("*/")) == []


async def test_many_sandboxes_live_side_by_side_and_do_not_see_each_other(make):
    sandboxes = [make() for _ in range(8)]
    await asyncio.gather(*(each.start() for each in sandboxes))
    for number, each in enumerate(sandboxes):
        await sh(each, f"echo {number} > /app/n; setsid sleep 7000 >/dev/null 2>&1 &")
    seen = [await text(each, "cat /app/n; pgrep -c sleep; hostname") for each in sandboxes]
    assert seen == [f"{number}\n1\nsandbox" for number in range(8)]
    await asyncio.gather(*(each.stop() for each in sandboxes))


async def test_closing_the_back_end_stops_everything(make, backend, tmp_path):
    sandbox = make()
    await sandbox.start()
    keeper = (await backend.keeper()).pid
    await backend.close()
    assert start_ticks(keeper) is None
    assert list((tmp_path / "home/sandboxes").iterdir()) == []
    with pytest.raises(SandboxError):
        await sandbox.exec(["true"])


async def test_a_keeper_that_died_is_replaced_and_its_sandboxes_fail(make, backend):
    sandbox = make()
    await sandbox.start()
    running = asyncio.ensure_future(sh(sandbox, "sleep 8000"))
    await sandbox.exec(["true"])
    os.kill((await backend.keeper()).pid, 9)
    with pytest.raises(SandboxError, match="ended while it was in use"):
        await running
    await sandbox.stop()
    assert list(backend.folder.glob("*/")) == []
    again = make()
    await again.start()
    assert (await again.exec(["true"])).exit_code == 0
    await again.stop()


async def test_nul_bytes_are_refused(sandbox):
    with pytest.raises(SandboxError, match="NUL"):
        await sandbox.exec(["echo", "a\0b"])


async def test_the_record_says_what_was_enforced_and_used(make):
    sandbox = make(memory_bytes=1 << 28, cpus=1.5, pids=50, storage_bytes=1 << 30)
    await sandbox.start()
    await sh(
        sandbox, "head -c 3000000 /dev/urandom > /app/f; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    )
    during = sandbox.info()
    await sandbox.stop()
    after = sandbox.info()
    assert set(after.enforced) == {"memory", "cpus", "pids", "storage", "network"}
    if "unknown" not in after.ledger:
        assert during.ledger["cpu_s"] > 0
        assert after.ledger["cpu_s"] >= during.ledger["cpu_s"]
    assert after.ledger["peak_memory_bytes"] > 0
    assert after.ledger["disk_bytes"] >= 3_000_000

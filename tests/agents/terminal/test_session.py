"""The shell stays between commands, in a real sandbox, over a line and by commands."""

from __future__ import annotations

import asyncio
import os

import pytest

from proctor.agents.base import Allowance, BudgetExhausted
from proctor.agents.terminal.keys import keys_of
from proctor.agents.terminal.program import FOLDER
from proctor.agents.terminal.session import Session
from proctor.errors import SandboxError
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.programs import init_program

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]
LONG_S = 60


@pytest.fixture
async def shell(place, context):
    made = Session(place, context(env={"FROM_TASK": "yes"}))
    await made.open()
    return made


async def test_folder_variables_and_jobs_stay(shell):
    first = await shell.run("cd /tmp; X='a b'; f() { echo \"f $1\"; }; sleep 300 &", LONG_S)
    assert (first.text, first.exit_code) == ("", 0)
    seen = await shell.run('pwd; echo "$X $FROM_TASK"; f 1; jobs | grep -c sleep; false', LONG_S)
    assert (seen.text, seen.exit_code) == ("/tmp\na b yes\nf 1\n1", 1)


async def test_a_script_of_many_lines_is_one_command(shell):
    lines = "\n".join(f"line {n} " + "x" * 50 for n in range(400))
    seen = await shell.run(f"cat > /tmp/file <<'END'\n{lines}\nEND\nwc -l < /tmp/file", LONG_S)
    assert (seen.text, seen.exit_code) == ("400", 0)


async def test_a_mistake_of_the_command_ends_it_and_not_the_shell(shell):
    seen = await shell.run("echo 'open", LONG_S)
    assert seen.exit_code == 2
    assert FOLDER not in seen.text
    assert (await shell.run("echo on", LONG_S)).text == "on"


async def test_a_command_that_does_not_end_can_be_waited_for_answered_and_interrupted(shell):
    seen = await shell.run("read name; echo hello $name; sleep 300", 0.2)
    assert (seen.exit_code, shell.running) == (None, True)
    seen = await shell.type(keys_of("you<Enter>"), 0.2)
    while "hello" not in seen.text:
        seen = await shell.type(b"", 0.2)
    assert (seen.text, seen.exit_code) == ("hello you", None)
    seen = await shell.type(keys_of("<C-c>"), LONG_S)
    assert (seen.exit_code, shell.running) == (130, False)


async def test_an_end_that_came_while_nobody_listened_is_told_to_the_next_one(shell, sandbox):
    await shell.run("until [ -e /tmp/go ]; do sleep 0.05; done; echo went; (exit 7)", 0.1)
    await sandbox.exec(["touch", "/tmp/go"])
    seen = await shell.type(b"", LONG_S)
    assert (seen.text, seen.exit_code) == ("went", 7)


async def test_a_prompt_that_is_left_over_is_not_the_end_of_the_next_command(shell):
    await shell.type(keys_of("<C-c><C-c><C-c>"), 1)
    seen = await shell.run("sleep 0.3; echo now", LONG_S)
    assert (seen.text.strip(), seen.exit_code) == ("now", 0)


async def test_a_file_that_sets_another_prompt_does_not_hide_the_end(shell):
    await shell.run("PS1='$ '", LONG_S)
    assert (await shell.run("echo found; (exit 3)", LONG_S)).exit_code == 3


async def test_a_full_screen_program_shows_its_page(shell):
    page = (
        r"printf '\033[?1049h\033[2J\033[3;5Hpage one\033[1;1Htop'; read x; printf '\033[?1049l'; echo after"
    )
    seen = await shell.run(page, 1)
    assert seen.full_screen
    assert seen.text == "top\n\n    page one"
    seen = await shell.type(keys_of("<Enter>"), LONG_S)
    assert seen.exit_code == 0
    assert seen.text.endswith("after")


async def test_a_shell_that_ends_is_started_again(shell):
    seen = await shell.run("echo bye; exit 3", LONG_S)
    assert (seen.text, seen.restarted) == ("bye", True)
    assert (await shell.run("pwd", LONG_S)).text == "/"


async def test_a_long_output_keeps_both_ends_counts_the_rest_and_is_whole_in_the_log(shell, logged):
    seen = await shell.run("seq 1 100000", LONG_S)
    assert seen.text.startswith("1\n2\n3")
    assert seen.text.endswith("\n99999\n100000")
    assert "bytes of the output left out" in seen.text
    assert len(seen.text) < 17_000
    assert b"\n54321\r\n" in logged
    assert b"\x1e" not in logged


async def test_output_beyond_the_limit_ends_the_attempt(place, context):
    shell = Session(place, context(limits=Allowance(output_bytes=1000)))
    await shell.open()
    with pytest.raises(BudgetExhausted, match="bytes of output"):
        await shell.run("seq 1 1000", LONG_S)


async def test_a_shell_without_bash_stays_too(place, sandbox, context):
    shell = Session(place, context(env={"PATH": "/tmp/bin"}))
    links = "for p in sleep rm chmod; do ln -s $(command -v $p) /tmp/bin/; done"
    script = f"mkdir -p /tmp/bin; {links}; ln -s $(command -v dash) /tmp/bin/sh"
    await sandbox.exec(["/bin/sh", "-c", script])
    await shell.open()
    await shell.run("cd /tmp; X=1", LONG_S)
    seen = await shell.run('echo "$X $PWD ${BASH_VERSION:-none}"; (exit 4)', LONG_S)
    assert (seen.text, seen.exit_code) == ("1 /tmp none", 4)


async def test_nothing_is_left_inside(shell, sandbox):
    await shell.close()
    assert (await sandbox.exec(["test", "-e", FOLDER])).exit_code == 1


async def test_over_a_line_commands_start_no_process_of_ours_and_no_file_is_to_be_seen(sandbox, context):
    shell = Session(sandbox, context())
    await shell.open()
    first = int((await shell.run("sh -c 'echo $$'", LONG_S)).text)
    for _ in range(20):
        last = int((await shell.run("sh -c 'echo $$'", LONG_S)).text)
    assert 20 <= last - first < 40
    seen = await shell.run(f"test -e {FOLDER}; echo $?; ls -l /proc/$$/fd | grep -c memfd", LONG_S)
    assert seen.text == "1\n0"


async def test_where_nothing_runs_out_of_memory_the_program_is_copied_in(sandbox, context):
    os.fchmod(sandbox._shared.program_descriptor(init_program()), 0o600)
    shell = Session(sandbox, context())
    await shell.open()
    assert (await shell.run(f"ls -1 {FOLDER}", LONG_S)).text == "socket\nterminal"
    await shell.close()
    assert (await sandbox.exec(["test", "-e", FOLDER])).exit_code == 1


async def test_another_account_has_its_own_shell(place, context):
    shell = Session(place, context(user="nobody"))
    await shell.open()
    seen = await shell.run("id -un; touch /etc/mine", LONG_S)
    assert seen.text.startswith("nobody\n")
    assert seen.exit_code == 1
    assert (await shell.run("exit", LONG_S)).restarted
    assert (await shell.run("id -un", LONG_S)).text == "nobody"
    await shell.close()


async def test_a_script_may_be_longer_than_any_socket_takes_at_once(shell):
    lines = "\n".join("x" * 99 for _ in range(20_000))
    seen = await shell.run(f"wc -c <<'END'\n{lines}\nEND", LONG_S)
    assert (seen.text, seen.exit_code) == ("2000000", 0)


async def test_what_a_job_prints_while_nobody_asks_does_not_hold_it_up_and_its_end_is_told(shell, sandbox):
    await shell.run("(until [ -e /tmp/go ]; do sleep 0.05; done; seq 1 200000; touch /tmp/gone) &", LONG_S)
    await sandbox.exec(["touch", "/tmp/go"])
    async with asyncio.timeout(LONG_S):
        while (await sandbox.exec(["test", "-e", "/tmp/gone"])).exit_code:
            pass
    seen = await shell.run("echo here", LONG_S)
    assert "\n199999\n200000\n" in seen.text
    assert "\n20000\n" not in seen.text
    assert "\nhere\n" in seen.text


async def test_a_terminal_that_is_killed_is_made_again(shell):
    seen = await shell.run("kill -9 $PPID; sleep 300", LONG_S)
    assert seen.restarted
    assert (await shell.run("echo on", LONG_S)).text == "on"


async def test_a_sandbox_that_is_stopped_ends_a_command_that_waits(shell, sandbox):
    waiting = asyncio.create_task(shell.run("touch /tmp/began; sleep 300", LONG_S))
    async with asyncio.timeout(LONG_S):
        while (await sandbox.exec(["test", "-e", "/tmp/began"])).exit_code:
            pass
        await sandbox.stop()
        with pytest.raises(SandboxError):
            await waiting


async def test_a_process_that_an_agents_command_lost_for_memory_is_no_later_commands(tmp_path, context):
    backend = Bubblewrap(tmp_path / "state")
    limits = Limits(memory_bytes=64 << 20)
    sandbox = backend.sandbox(SandboxRequest(name="oom", root=Root(host=True), limits=limits))
    await sandbox.start()
    try:
        if "cgroup" not in sandbox.info().enforced["memory"]:
            pytest.skip("memory is not limited by control groups here")
        shell = Session(sandbox, context())
        await shell.open()
        await shell.run("python3 -c 'x = bytearray(400_000_000)'", LONG_S)
        await shell.close()
        assert sandbox.info().ledger["oom_kills"] >= 1
        assert not (await sandbox.exec(["true"])).oom_killed
    finally:
        await sandbox.stop()
        await backend.close()


async def test_nobody_inside_can_change_the_program_that_all_sandboxes_share(sandbox, context):
    shell = Session(sandbox, context())
    await shell.open()
    attack = "chmod 0 /proc/$PPID/exe && echo closed; echo x 2>&1 > /proc/$PPID/exe && echo written"
    seen = await shell.run(attack, LONG_S)
    assert "closed" not in seen.text
    assert "written" not in seen.text
    again = Session(sandbox, context())
    await again.open()
    assert (await again.run(f"ls {FOLDER}", LONG_S)).exit_code == 2

"""Running hostile programs inside a sandbox: what the attack tests of all back ends share."""

from __future__ import annotations

import asyncio
import textwrap

MB = 1 << 20


async def sh(sandbox, script, **options):
    options.setdefault("timeout_s", 60)
    return await sandbox.exec(["sh", "-c", script], **options)


async def python(sandbox, code, **options):
    options.setdefault("timeout_s", 60)
    return await sandbox.exec(["python3", "-c", textwrap.dedent(code)], **options)


async def fork_bomb(sandbox):
    """Bounded by a limit on processes, it ends with its time, and the sandbox can be used again."""
    result = await sh(sandbox, "bomb() { bomb | bomb & }; bomb; sleep 100", timeout_s=1.5)
    assert result.exit_code != 0
    async with asyncio.timeout(60):
        while True:
            await sandbox.end_processes()
            result = await sh(sandbox, "ls -d /proc/[0-9]* | wc -l")
            if result.exit_code == 0 and int(result.stdout) < 10:
                break


async def memory_bomb(sandbox):
    """Ended by a limit of 64 MB, and told from a crash where the kernel tells."""
    result = await python(sandbox, "x = bytearray(400_000_000)")
    assert result.exit_code != 0
    if "cgroup" in sandbox.info().enforced["memory"]:
        assert result.oom_killed
        ledger = sandbox.info().ledger
        assert ledger["oom_kills"] >= 1
        assert ledger["host_oom"] is False
    assert (await sandbox.exec(["true"])).exit_code == 0
    assert not (await sh(sandbox, "exit 3")).oom_killed

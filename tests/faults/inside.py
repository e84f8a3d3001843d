"""Running hostile programs inside a sandbox: what the attack tests of all back ends share."""

from __future__ import annotations

import textwrap

import pytest

MB = 1 << 20
both = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "fallback"], indirect=True)
"""With the compiled keeper of bubblewrap's sandboxes, and with the one that needs no compiler."""


async def sh(sandbox, script, **options):
    options.setdefault("timeout_s", 60)
    return await sandbox.exec(["sh", "-c", script], **options)


async def python(sandbox, code, **options):
    options.setdefault("timeout_s", 60)
    return await sandbox.exec(["python3", "-c", textwrap.dedent(code)], **options)

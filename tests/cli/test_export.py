from __future__ import annotations

import subprocess
import sys

import pytest

CHECK = """
import sys
from proctor.cli.main import main
code = main(sys.argv[1:])
heavy = {"numpy", "sqlalchemy", "rich", "asyncio", "jsonschema", "scipy"} & sys.modules.keys()
assert not heavy, heavy
sys.exit(code)
"""


@pytest.mark.parametrize("command", ["report", "export", "import"])
def test_help_and_a_wrong_run_load_nothing_heavy(command):
    for arguments, code in (([command, "--help"], 0), ([command, "no-such-run"], 2)):
        done = subprocess.run(
            [sys.executable, "-c", CHECK, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr

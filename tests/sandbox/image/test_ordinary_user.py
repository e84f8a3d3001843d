from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

INTERPRETER = "/usr/bin/python3"
SOURCE = Path(__file__).parents[3] / "src"

pytestmark = [pytest.mark.needs("bubblewrap", "root")]


@pytest.mark.skipif(not Path(INTERPRETER).exists(), reason="no interpreter that another user may run")
def test_images_and_states_work_for_an_ordinary_user(ordinary_user):
    script = (Path(__file__).parent / "as_user.py").read_text()
    command = [
        "runuser", "-u", ordinary_user, "--", "env", "-i", f"HOME=/home/{ordinary_user}",
        "PATH=/usr/bin:/bin", f"PYTHONPATH={SOURCE}", "PYTHONDONTWRITEBYTECODE=1", INTERPRETER, "-c", script,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd="/")
    assert done.stdout.endswith("fine\n"), done.stdout + done.stderr

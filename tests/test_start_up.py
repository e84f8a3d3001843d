"""Heavy modules are absent from commands that only read. What start-up costs is measured in benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.test_compare import store_run

from proctor.cli.main import COMMANDS

HEAVY = {"asyncio", "rich", "numpy", "scipy", "sklearn", "sqlalchemy", "alembic", "psutil", "yaml", "psycopg"}
HEAVY |= {"cryptography", "aiohttp", "resvg_py", "fastapi", "starlette", "uvicorn", "pydantic"}
PROBE = """
import json, sys
from proctor.cli.main import main
try:
    code = main(sys.argv[1:])
finally:
    names = sorted({name.partition(".")[0] for name in sys.modules})
    print(json.dumps(names), file=sys.stderr)
sys.exit(code)
"""


def modules_after(*arguments: str, cwd: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("list",),
        ("list", "--json"),
        ("ls",),
        ("ls", "--json"),
        ("agents",),
        ("models",),
    ],
)
def test_a_reading_command_imports_nothing_heavy(arguments, tmp_path):
    assert not modules_after(*arguments, cwd=tmp_path) & HEAVY


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_help_of_every_command_imports_nothing_heavy(name, tmp_path):
    assert not modules_after(name, "--help", cwd=tmp_path) & HEAVY


@pytest.mark.needs("bubblewrap")
def test_a_run_of_tasks_without_gates_imports_no_arrays_and_no_http_client(tmp_path):
    task = Path(__file__).parents[1] / "tasks/config-edit"
    run = ("run", "-t", str(task), "-a", "oracle", "-n", "1", "--host-root")
    heavy = HEAVY - {"asyncio"}  # sandboxes need it
    assert not modules_after(*run, cwd=tmp_path) & heavy


def test_importing_the_package_imports_nothing_at_all():
    code = "import sys; before = set(sys.modules); import proctor; print(sorted(set(sys.modules) - before))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(shown.replace("'", '"')) == ["proctor"]


SHOWN = """
import sys
from proctor.cli.main import main
code = main(sys.argv[1:])
pages = ("proctor.render.charts", "proctor.render.document.html")
drawing = [name for name in sys.modules if name.startswith(pages)]
print(drawing, file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [("history", "sorting"), ("compare", "run-1", "run-2")])
def test_a_result_in_a_terminal_imports_neither_charts_nor_pages(arguments):
    for number in (1, 2):
        store_run(f"run-{number}", 1.0, at=number)
    shown = subprocess.run(
        [sys.executable, "-c", SHOWN, *arguments], capture_output=True, text=True, check=True
    )
    assert "sorting" in shown.stdout
    assert shown.stderr.splitlines()[-1] == "[]"

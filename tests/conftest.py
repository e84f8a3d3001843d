"""What every test shares: the `needs` marker, which skips by name or fails when all is required."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine must not fail a property: how long an example takes says nothing about it.
settings.register_profile(
    "proctor",
    derandomize=bool(os.environ.get("CI")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("proctor")


def _postgres() -> bool:
    return bool(shutil.which("initdb") or list(Path("/usr/lib/postgresql").glob("*/bin/initdb")))


COMPONENTS: dict[str, Callable[[], bool]] = {
    "bubblewrap": lambda: bool(shutil.which("bwrap")),
    "chromium": lambda: bool(shutil.which("chromium")),
    "git": lambda: bool(shutil.which("git")),
    "memray": lambda: importlib.util.find_spec("memray") is not None,
    "pandas": lambda: importlib.util.find_spec("pandas") is not None,
    "podman": lambda: bool(shutil.which("podman")),
    "polars": lambda: importlib.util.find_spec("polars") is not None,
    "podman-compose": lambda: bool(shutil.which("podman-compose")),
    "postgres": _postgres,
    "pyarrow": lambda: importlib.util.find_spec("pyarrow") is not None,
    "pyinstrument": lambda: importlib.util.find_spec("pyinstrument") is not None,
    "root": lambda: os.geteuid() == 0,
    "tmux": lambda: bool(shutil.which("tmux")),
    "valgrind": lambda: bool(shutil.which("valgrind")),
}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("PROCTOR_TEST_REQUIRE") == "all"
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if not COMPONENTS[name]():
                if required:
                    pytest.fail(f"needs {name}, and PROCTOR_TEST_REQUIRE=all", pytrace=False)
                pytest.skip(f"needs {name}")


@pytest.fixture(scope="session")
def podman_image() -> str:
    """An image of this machine's own programs; it stays in podman's storage from one session to the next."""
    script = Path(__file__).parents[1] / "scripts" / "host_image.py"
    made = subprocess.run([sys.executable, script, "podman"], capture_output=True, text=True, check=False)
    if made.returncode:
        reason = f"podman cannot make an image here: {made.stderr.strip().splitlines()[-1:]}"
        if os.environ.get("PROCTOR_TEST_REQUIRE") == "all":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return made.stdout.strip()


@pytest.fixture
async def podman(
    podman_image: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, anyio_backend: str
) -> AsyncIterator[object]:
    """The podman back end; what it finds out about the machine is found out once for all tests."""
    from proctor.sandbox.podman import open_podman

    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "podman-cache"
    made = open_podman(tmp_path / "podman", cache_dir=shared)
    yield made
    await made.close()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the settings, store or results of the person who runs it."""
    for name in list(os.environ):
        if name.startswith("PROCTOR_") and name != "PROCTOR_TEST_REQUIRE":
            monkeypatch.delenv(name)
    monkeypatch.delenv("SANDBOX_BACKEND", raising=False)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("PROCTOR_HOME", str(home / ".proctor"))
    monkeypatch.setenv("PROCTOR_OUTPUT_DIR", str(home / "results"))
    monkeypatch.setenv("PROCTOR_ROLLOUTS_DIR", str(home / "rollouts"))


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., Path]:
    """A task whose solution and tests are these scripts; `solved` is what the tests look at."""

    def make(
        name: str,
        solve: str = "echo yes > /app/solved",
        test: str = "grep -q yes /app/solved",
        *,
        network: str = "no-network",
        environment: str = "",
    ) -> Path:
        folder = tmp_path / "tasks" / name
        for part in ("environment", "solution", "tests"):
            (folder / part).mkdir(parents=True)
        (folder / "task.toml").write_text(
            f'schema_version = "1.4"\n[task]\nname = "t/{name}"\n[agent]\ntimeout_sec = 20\n'
            f'[verifier]\ntimeout_sec = 20\n[environment]\nnetwork_mode = "{network}"\n{environment}'
        )
        (folder / "instruction.md").write_text("Write yes to /app/solved.\n")
        (folder / "environment" / "Dockerfile").write_text("FROM debian:bookworm-slim\nWORKDIR /app\n")
        (folder / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{solve}\n")
        (folder / "tests" / "test.sh").write_text(
            f"#!/bin/bash\nif {test}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
        )
        return folder

    return make

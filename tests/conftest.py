"""What every test shares: the `needs` marker, which skips by name or fails when all is required."""

from __future__ import annotations

import importlib.util
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.brokers import rabbitmq, rabbitmq_node, rabbitmq_program
from tests.postgres import migrated_postgres, postgres_server, postgres_url, store_url

__all__ = ["migrated_postgres", "postgres_server", "postgres_url", "rabbitmq", "rabbitmq_node", "store_url"]
"""Fixtures of every test, kept in a file of their own."""

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


def _namespaces() -> bool:
    from proctor.sandbox.userns import obstacle

    return not obstacle()


@cache
def _registries() -> bool:
    """Whether packages can be fetched here: from PyPI, and by npm where there is one."""
    asked = [[sys.executable, "-m", "pip", "index", "versions", "six"]]
    if shutil.which("npm"):
        asked.append(["npm", "view", "left-pad", "version"])
    return all(
        not subprocess.run(each, capture_output=True, timeout=60, check=False).returncode for each in asked
    )


COMPONENTS: dict[str, Callable[[], bool]] = {
    "bubblewrap": _namespaces,
    "docker-registry": lambda: bool(shutil.which("docker-registry")),
    "mmdebstrap": lambda: bool(shutil.which("mmdebstrap")),
    "cc": lambda: bool(shutil.which("cc")),
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
    "rabbitmq": lambda: rabbitmq_program() is not None,
    "redis": lambda: bool(shutil.which("redis-server")),
    "registries": _registries,
    "root": lambda: os.geteuid() == 0,
    "slirp4netns": lambda: bool(shutil.which("slirp4netns")) and Path("/dev/net/tun").exists(),
    "tmux": lambda: bool(shutil.which("tmux")),
    "web-page": (Path(__file__).parents[1] / "src/proctor/server/static/index.html").is_file,
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
def podman_image() -> Iterator[str]:
    """An image of this machine's own programs; the last session that uses it removes it."""
    from tests.shared_image import shared_image

    with shared_image("podman") as (reference, reason):
        if not reference:
            if os.environ.get("PROCTOR_TEST_REQUIRE") == "all":
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)
        yield reference


@pytest.fixture
async def podman(
    podman_image: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, anyio_backend: str
) -> AsyncIterator[object]:
    """The podman back end; what it finds out about the machine is found out once for all tests."""
    from proctor.sandbox.container.backend import Containers
    from proctor.sandbox.container.engine import PODMAN

    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "podman-cache"
    made = Containers(PODMAN, tmp_path / "podman", cache_dir=shared)
    yield made
    await made.close()


@pytest.fixture(scope="session")
def registry_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real registry on loopback for all tests, as `host:port`."""
    from tests.sandbox.image.registry.servers import registry

    with registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small Debian system as a tar."""
    from tests.debian import debian_tar

    return debian_tar(tmp_path_factory.getbasetemp()).read_bytes()


@pytest.fixture
def ordinary_user() -> Iterator[str]:
    """The name of an account that is gone after the test, with all that it owns and runs."""
    from tests.accounts import account

    with account(f"proctor-test-{os.getpid()}") as name:
        yield name


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def _temporary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where programs put their temporary files: what a killed one leaves is removed with the session's."""
    return str(tmp_path_factory.mktemp("t"))


@pytest.fixture(autouse=True)
def _own_home(
    tmp_path_factory: pytest.TempPathFactory, _temporary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test sees the settings, store or results of the person who runs it, or leaves files elsewhere."""
    monkeypatch.setenv("TMPDIR", _temporary)
    monkeypatch.setattr(tempfile, "tempdir", _temporary)
    for name in list(os.environ):
        if name.startswith("PROCTOR_") and name != "PROCTOR_TEST_REQUIRE":
            monkeypatch.delenv(name)
    monkeypatch.delenv("SANDBOX_BACKEND", raising=False)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("PROCTOR_HOME", str(home / ".proctor"))
    monkeypatch.delenv("COLUMNS", raising=False)  # the test runner sets it; tables would be cut to it
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


@pytest.fixture(scope="session")
def with_tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate that nobody trusts yet, and the context of a server on loopback that shows it."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return folder / "cert.pem", context


@pytest.fixture(autouse=True)
def _close_resources() -> Iterator[None]:
    """What tests opened as a process does."""
    yield
    if made := sys.modules.get("tests.resources"):
        made.close_all()

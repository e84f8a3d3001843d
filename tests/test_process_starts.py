"""Every program that is started gets an environment made for it: a key of this process is in none of them."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import proctor
from proctor.processes import OF_GIT, full_environment, host_environment
from proctor.sandbox.container.engine import call, engine_environment
from proctor.sandbox.harbor.place import provider_environment
from proctor.sandbox.image.registry.credentials import find_login
from proctor.trial.environment import capture_vcs

SOURCE = Path(proctor.__file__).parent
KEY = "sk-host-2f7c19a4b0d84e21"
KEYS = (
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "AZURE_OPENAI_API_KEY",
    "AZURE_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "OPENROUTER_API_KEY", "PROCTOR_MODEL_API_KEY",
    "PROCTOR_STORE_URL", "PROCTOR_SECRET_KEY",
)  # fmt: skip
STARTS = {
    "subprocess": {"run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "os": {"posix_spawn", "posix_spawnp", "system", "popen", "execve", "execv", "execvp", "execvpe", "execl"},
    "pty": {"spawn"},
    "multiprocessing": {"Process", "Pool", "get_context"},
}
ENVIRONMENT_THIRD = {"posix_spawn", "posix_spawnp", "execve", "execvpe"}
READS_ALL = {
    "processes.py": "the two functions that make environments",
    "agents/episodes/inside/agent_program.py": "runs inside a sandbox",
    "api.py": "variables that a spec names",
    "cli/main.py": "secrets to take out of a message",
    "cli/spec_options.py": "variables that a spec names",
    "gateway/providers.py": "keys of providers",
    "runs/grants.py": "variables that a spec names",
    "runs/perf/scenario.py": "variables that a spec names",
    "runs/planning.py": "variables that a spec names",
    "runs/ready.py": "variables that a spec names",
    "runs/process_resources.py": "variables that a spec names",
    "runs/secrets.py": "variables that a spec names",
    "sandbox/image/registry/credentials.py": "where logins are; its helpers get a part",
    "server/auth/vault.py": "the key of the vault",
    "server/routes/workers.py": "variables that a spec names",
    "server/submit/making.py": "variables that a spec names",
    "server/tracing/tracing.py": "settings",
    "settings.py": "settings",
    "spec/load.py": "variables that a spec names",
}
"""Who looks at all variables of the process, and what for. None of them may hand all of them on."""
GETS_ALL = {
    "server/app.py": "the engine is Proctor itself",
    "runs/suites.py": "imports the user's benchmarks",
    "experiments/suites/asv_case.py": "the user's benchmarks",
    "trial/forkserver/client.py": "the user's experiments",
    "trial/experiment_trial.py": "the user's experiments, under another program",
    "trial/lockstep/process.py": "the user's experiments",
    "trial/lockstep/command.py": "commands of `proctor time`",
}
"""Whose processes get all variables."""


def nodes() -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Each node of each file, with the one around it."""
    for file in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(file.read_text())
        for parent in ast.walk(tree):
            for node in ast.iter_child_nodes(parent):
                yield str(file.relative_to(SOURCE)), node, parent


def has_environment(node: ast.Call, name: str) -> bool:
    given = [each.value for each in node.keywords if each.arg == "env"]
    given += node.args[2:3] if name in ENVIRONMENT_THIRD else []
    return bool(given) and not (isinstance(given[0], ast.Constant) and given[0].value is None)


def test_no_program_is_started_without_an_environment_of_its_own():
    seen, wrong = 0, []
    for file, node, _ in nodes():
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.attr in STARTS.get(node.func.value.id, ())
        ):
            seen += 1
            if not has_environment(node, node.func.attr):
                wrong.append(f"{file}:{node.lineno}")
    assert seen > 20
    assert wrong == [], "env=proctor.processes.host_environment(…)"


def test_nobody_imports_what_starts_programs_by_another_name():
    wrong = [
        f"{file}:{node.lineno}"
        for file, node, _ in nodes()
        if (
            (isinstance(node, ast.ImportFrom) and node.module in STARTS and node.level == 0)
            and STARTS[node.module] & {each.name for each in node.names}
        )
        or (isinstance(node, ast.Import) and any(each.asname and each.name in STARTS for each in node.names))
    ]
    assert wrong == []


def test_who_reads_all_variables_is_known():
    found = {
        file
        for file, node, parent in nodes()
        if isinstance(node, ast.Attribute)
        and node.attr in {"environ", "environb"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and not isinstance(parent, ast.Subscript | ast.Compare)
        and not (isinstance(parent, ast.Attribute) and parent.attr in {"get", "pop", "setdefault"})
    }
    assert found == set(READS_ALL)


def test_whose_processes_get_all_variables_is_known():
    found = {
        file
        for file, node, _ in nodes()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "full_environment"
    }
    assert found == set(GETS_ALL)


@pytest.fixture
def keys(monkeypatch):
    for name in KEYS:
        monkeypatch.setenv(name, KEY)
    assert KEY in full_environment().values()


@pytest.fixture
def program(tmp_path, monkeypatch, keys) -> Callable[[str], dict[str, str]]:
    """Programs of these names that write down what they were given."""

    def seen(name: str) -> dict[str, str]:
        found: dict[str, str] = json.loads((tmp_path / f"{name}.json").read_text())
        return found

    for name in ("git", "podman", "docker-credential-made", "psql"):
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            f"#!/usr/bin/python3 -I\nimport json, os\n"
            f"json.dump(dict(os.environ), open({str(tmp_path / name)!r} + '.json', 'w'))\n"
        )
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return seen


def test_git_sees_no_key(program, tmp_path):
    from proctor.tasks import git
    from proctor.tasks.address import GitUrl
    from proctor.trial.lockstep import worktree

    starts = (
        lambda: capture_vcs(tmp_path),
        lambda: git.run_git(GitUrl(url="https://example.invalid/x"), ["version"]),
        lambda: worktree._git(tmp_path, "version"),
    )
    for start in starts:
        start()
        given = program("git")
        assert KEY not in given.values()
        assert given["HOME"] == os.environ["HOME"]
        (tmp_path / "git.json").unlink()


@pytest.mark.anyio
async def test_a_container_engine_sees_no_key(program):
    assert (await call(["podman", "info"])).code == 0
    assert KEY not in program("podman").values()


def test_a_credential_helper_sees_no_key(program, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps({"credHelpers": {"r.example": "made"}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    find_login("r.example")
    given = program("docker-credential-made")
    assert KEY not in given.values()
    assert given["DOCKER_CONFIG"] == str(tmp_path)


def test_the_database_s_program_sees_its_own_password_and_no_key(program, monkeypatch):
    from proctor.store import postgres_backup

    monkeypatch.setenv("PGSSLMODE", "require")
    postgres_backup._run("psql", [], {"PGPASSWORD": "p"})
    given = program("psql")
    assert (given["PGPASSWORD"], given["PGSSLMODE"]) == ("p", "require")
    assert KEY not in given.values()


def test_what_is_asked_for_is_handed_on_and_nothing_else(keys, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -x")
    assert "HTTPS_PROXY" not in host_environment()
    assert host_environment(network=True)["HTTPS_PROXY"] == "http://proxy:1"
    assert host_environment(*OF_GIT)["GIT_SSH_COMMAND"] == "ssh -x"
    assert host_environment(extra={"A": "b"})["A"] == "b"
    assert host_environment(environ={}) == {"PATH": os.defpath}
    for made in (host_environment(*OF_GIT, network=True), engine_environment(), provider_environment("gke")):
        assert KEY not in made.values()


def test_an_installer_sees_where_it_is_to_look_and_no_key(program, monkeypatch):
    from proctor.agents.installed import recipes

    monkeypatch.setenv("PIP_INDEX_URL", "https://index.invalid")
    recipes.run(["podman"])
    given = program("podman")
    assert given["PIP_INDEX_URL"] == "https://index.invalid"
    assert KEY not in given.values()


def test_a_command_to_be_timed_gets_the_user_s_environment(keys, tmp_path):
    from proctor.model.lockstep import UNPADDED
    from proctor.trial.lockstep.command import Command, _start

    command = Command(name="c", text="env", env={"OWN": "1"})
    with Path(os.devnull).open("rb") as stdin, (tmp_path / "out").open("wb") as output:
        assert _start(command, stdin, output, UNPADDED).wait() == 0
    lines = (tmp_path / "out").read_text().splitlines()
    assert {f"OPENAI_API_KEY={KEY}", "OWN=1"} <= set(lines)

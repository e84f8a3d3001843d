"""Tasks in every shape that public collections use, written as ordinary folders; none knows its sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Files = Mapping[str, str]
_FROM = "FROM debian:bookworm-slim\n"
_SOLVE = "#!/bin/bash\necho 42 > /app/answer.txt\n"
_REWARD = "/logs/verifier/reward.txt"
_TEST = f"#!/bin/bash\nif grep -qx 42 /app/answer.txt; then echo 1; else echo 0; fi > {_REWARD}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A task's files, beyond the usual ones, and what its author's solution earns."""

    toml: str = ""
    files: Files
    oracle: float = 1.0
    podman_only: bool = False


def _shape(toml: str = "", *, oracle: float = 1.0, podman_only: bool = False, **files: str) -> Shape:
    usual = {"environment/Dockerfile": f"{_FROM}WORKDIR /app\n", "solution/solve.sh": _SOLVE}
    kept = {name: text for name, text in {**usual, "tests/test.sh": _TEST, **files}.items() if text}
    return Shape(toml=toml, files=kept, oracle=oracle, podman_only=podman_only)


def _plain() -> Shape:
    test = _TEST.replace("grep", ". /etc/os-release; [ $VERSION_CODENAME = bookworm ] && grep")
    return _shape(**{"tests/test.sh": test})


def _several_rewards() -> Shape:
    """The mean of several parts; one of them the author's solution earns only by half."""
    test = """#!/bin/bash
right=0; neat=0
grep -qx 42 /app/answer.txt && right=1 && neat=0.5
echo "{\\"right\\": $right, \\"neat\\": $neat}" > /logs/verifier/reward.json
"""
    return _shape(oracle=0.75, **{"tests/test.sh": test})


def _steps() -> Shape:
    """Each step adds to what the one before has left; the judge is shared, one step has a file of its own."""
    test = (
        f'#!/bin/bash\n. /tests/judge.sh\njudge "$(cat /tests/wanted 2> /dev/null || echo one)" > {_REWARD}\n'
    )
    return _shape(
        '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n',
        **{
            "solution/solve.sh": "",
            "tests/test.sh": test,
            "tests/judge.sh": 'judge() { if grep -qx "$1" /app/done; then echo 1; else echo 0; fi; }\n',
            "steps/one/instruction.md": "Write one.\n",
            "steps/one/solution/solve.sh": "[ ! -e /tests/judge.sh ] && echo one > /app/done\n",
            "steps/two/instruction.md": "Write two.\n",
            "steps/two/solution/solve.sh": "grep -qx one /app/done && echo two >> /app/done\n",
            "steps/two/tests/wanted": "two\n",
        },
    )


def _separate_verifier() -> Shape:
    """The tests are in an image of their own and see what is declared, and nothing else of the agent's."""
    test = f"""#!/bin/bash
[ ! -e /app/secret ] && [ -e /judge ] && grep -qx 42 /app/answer.txt && echo 1 > {_REWARD} && exit
echo 0 > {_REWARD}
"""
    return _shape(
        'artifacts = ["/app/answer.txt"]\n[verifier]\nenvironment_mode = "separate"\n',
        **{
            "solution/solve.sh": f"{_SOLVE}touch /app/secret\n",
            "tests/Dockerfile": f"{_FROM}WORKDIR /app\nRUN touch /judge\nCOPY . /tests/\n",
            "tests/test.sh": test,
        },
    )


_MAIN = """services:
  main:
    build: { context: "${CONTEXT_DIR}" }
    image: ${MAIN_IMAGE_NAME}
    command: ["sh", "-c", "sleep infinity"]
    volumes: ["${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}"]
    environment: { ANSWER: "42" }
"""
_OTHER = """    depends_on: [other]
  other:
    image: debian:bookworm-slim
    command: ["sh", "-c", "mkdir /served && echo 42 > /served/answer && python3 -m http.server -d /served 80"]
"""


def _one_service() -> Shape:
    solve = "#!/bin/bash\necho $ANSWER > /app/answer.txt\n"
    return _shape(**{"environment/docker-compose.yaml": _MAIN, "solution/solve.sh": solve})


def _two_services() -> Shape:
    solve = "#!/bin/bash\ncurl -sf --retry 30 --retry-all-errors http://other/answer > /app/answer.txt\n"
    return _shape(
        podman_only=True,
        **{"environment/docker-compose.yaml": f"{_MAIN}{_OTHER}", "solution/solve.sh": solve},
    )


def _prebuilt(registry: str) -> Shape:
    """No Dockerfile: the image has the tool and the folder."""
    return _shape(
        f'[environment]\ndocker_image = "{registry}/tasks/tool:1"\n',
        **{"environment/Dockerfile": "", "solution/solve.sh": "#!/bin/bash\nsh /opt/tool > answer.txt\n"},
    )


def _uv(server: str) -> Shape:
    """As the tests of public tasks begin: fetch uv, then have it fetch and run the checks."""
    test = f"""#!/bin/bash
curl -LsSf {server}/uv/install.sh | sh
source $HOME/.local/bin/env
uvx --from {server}/judge-1.0-py3-none-any.whl judge /app/answer.txt
if [ $? -eq 0 ]; then echo 1; else echo 0; fi > {_REWARD}
"""
    return _shape(**{"tests/test.sh": test})


def _missing_workdir() -> Shape:
    test = f"""#!/bin/bash
if grep -qx /srv/made/here /srv/made/here/where; then echo 1; else echo 0; fi > {_REWARD}
"""
    return _shape(
        '[environment]\nworkdir = "/srv/made/here"\n',
        **{
            "environment/Dockerfile": _FROM,
            "solution/solve.sh": "#!/bin/bash\npwd > where\n",
            "tests/test.sh": test,
        },
    )


def _other_users() -> Shape:
    """Agent and tests as two accounts of the image, with homes and rights of their own."""
    image = f"{_FROM}RUN useradd -m worker && useradd -m judge && install -d -o worker /app\nWORKDIR /app\n"
    test = f"""#!/bin/bash
[ "$(id -un):$HOME" = judge:/home/judge ] && ! touch /app/mine 2> /dev/null &&
  grep -qx worker:/home/worker /app/answer.txt && [ -s /logs/artifacts/note ] && echo 1 > {_REWARD} && exit
echo 0 > {_REWARD}
"""
    tell = 'echo "$(id -un):$HOME"'
    return _shape(
        '[agent]\nuser = "worker"\n[verifier]\nuser = "judge"\n',
        **{
            "environment/Dockerfile": image,
            "solution/solve.sh": f"{tell} > answer.txt && {tell} > /logs/artifacts/note\n",
            "tests/test.sh": test,
        },
    )


def _allow_list(server: str) -> Shape:
    """One host answers, every other is refused."""
    host = server.removeprefix("http://").partition(":")[0]
    solve = f"""#!/bin/bash
curl -sf http://other.example/ || curl -sf {server}/answer > answer.txt
"""
    return _shape(
        f'[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["{host}"]\n',
        **{"solution/solve.sh": solve},
    )


def shapes(registry: str, server: str) -> dict[str, Shape]:
    """All, by name: `registry` is where the prebuilt image is, `server` where the files to fetch are."""
    return {
        "plain": _plain(),
        "several-rewards": _several_rewards(),
        "steps": _steps(),
        "separate-verifier": _separate_verifier(),
        "one-service": _one_service(),
        "two-services": _two_services(),
        "prebuilt": _prebuilt(registry),
        "uv": _uv(server),
        "missing-workdir": _missing_workdir(),
        "other-users": _other_users(),
        "allow-list": _allow_list(server),
    }


def write(folder: Path, shape: Shape) -> None:
    """Put a task into a folder."""
    files = {
        "task.toml": f'schema_version = "1.4"\n{shape.toml}',
        "instruction.md": "Write 42.\n",
        **shape.files,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

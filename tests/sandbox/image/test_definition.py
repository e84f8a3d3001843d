"""A compose file with one service, in a real sandbox."""

# Compose files are kept whole.

from __future__ import annotations

import pytest

from proctor.errors import ImageError, TaskError
from proctor.sandbox.image.definition import definition_of

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]

WHOLE = """
services:
  main:
    build: {context: "${CONTEXT_DIR}", dockerfile: Other, target: first, args: {WHO: you}}
    image: ${MAIN_IMAGE_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment: [SAID=hello, MISSING, TEST_DIR=/tests]
    env_file: vars
    working_dir: /elsewhere
    user: www-data
    tmpfs: /quick:size=1m
    volumes:
      - ${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}
      - /anonymous
      - ./data:/shown:ro
    deploy: {resources: {limits: {cpus: "${CPUS}", memory: "${MEMORY}"}}}
    restart: "no"
"""


@pytest.fixture
def compose(make_task):
    def made(text, **more):
        files = {
            "docker-compose.yaml": text,
            "Other": "FROM x AS first\nARG WHO\nRUN echo $WHO > /who\nFROM x\n",
            "vars": "# none\nFROM_FILE='yes'\nSAID=no\n",
            "data/d": "shown",
        }
        task = make_task(more.pop("dockerfile", None), files=files)
        file = task.environment.folder / "docker-compose.yaml"
        return make_task(None, files=files, compose=file, **more)

    return made


async def test_one_service_is_a_root_with_its_environment_folder_and_user(images, compose, look):
    root = await images.root(compose(WHOLE, cpus=2, memory_bytes=1 << 30))
    assert (root.workdir, root.user) == ("/elsewhere", "www-data")
    assert {name: root.env[name] for name in ("SAID", "FROM_FILE", "TEST_DIR")} == {
        "SAID": "hello", "FROM_FILE": "yes", "TEST_DIR": "/tests",
    }  # fmt: skip
    assert "MISSING" not in root.env
    assert await look(root, "cat /who /shown/d; ls -d /anonymous /quick; id -un; pwd") == (
        "you\nshown/anonymous\n/quick\nwww-data\n/elsewhere"
    )


async def test_several_services_need_an_engine(images, compose):
    task = compose("services: {main: {build: .}, db: {image: x}, web: {image: x}}")
    with pytest.raises(ImageError, match=r"docker-compose\.yaml: the services db, web need podman or docker"):
        await images.root(task)


@pytest.mark.parametrize(
    ("service", "said"),
    [
        ("read_only: true", "'read_only' needs podman or docker"),
        ("shm_size: 1g", "'shm_size' needs podman or docker"),
        ("command: ./server", "'command' starts a program of its own"),
        ("entrypoint: [serve]", "'entrypoint' starts a program of its own"),
        ("healthcheck: {test: [CMD, 'true']}", "'healthcheck' belongs in task.toml"),
        ("mem_limit: 1g", "'mem_limit' belongs in task.toml"),
        ("deploy: {resources: {limits: {cpus: '3'}}}", r"limits\.cpus' belongs in task.toml"),
        ("platform: linux/s390x", "this machine is linux/"),
    ],
)
async def test_what_a_sandbox_cannot_keep_is_refused_by_name(compose, service, said):
    with pytest.raises(ImageError, match=said):
        definition_of(compose(f"services: {{main: {{build: ., {service}}}}}").environment)


async def test_what_is_wrong_in_the_file_is_the_author_s_error(compose):
    with pytest.raises(TaskError, match="'privileged' is not allowed"):
        definition_of(compose("services: {main: {build: ., privileged: true}}").environment)
    with pytest.raises(TaskError, match="none: cannot be read"):
        definition_of(compose("services: {main: {build: ., env_file: none}}").environment)
    with pytest.raises(TaskError, match="NEEDED has no value"):
        definition_of(compose("services: {main: {image: '${NEEDED:?}'}}").environment)


@pytest.mark.parametrize("command", ["tail -f /dev/null", "sleep infinity", "[bash, -c, sleep 3600]", "''"])
async def test_a_command_that_only_waits_is_fine(compose, command):
    definition = definition_of(
        compose(f"services: {{main: {{image: 'a:1', command: {command}}}}}").environment
    )
    assert definition.image == "a:1"

"""Compose files of tasks: what is read from them and what is refused."""

from __future__ import annotations

import pytest

from proctor.errors import SandboxError, TaskError
from proctor.model.task import TaskEnvironment
from proctor.sandbox.container import composition
from proctor.sandbox.container.compose import compose_program
from proctor.sandbox.container.engine import PODMAN
from proctor.sandbox.image.definition import main_service


@pytest.fixture
def write(tmp_path):
    def written(text):
        file = tmp_path / "task/docker-compose.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    return written


def test_the_main_service_is_called_main_or_is_the_only_one(write):
    found = composition.read(
        write("services: {main: {build: {context: sub}}, db: {image: x}}\nnetworks: {n: }")
    )
    assert (found.main, list(found.document["services"]), list(found.document["networks"])) == (
        "main",
        ["main", "db"],
        ["n"],
    )
    assert found.context.name == "sub"
    assert found.dockerfile == found.context / "Dockerfile"
    assert found.image is None
    alone = composition.read(write("x-note: fine\nservices: {app: {image: debian}}"))
    assert (alone.main, alone.image, alone.context) == ("app", "debian", None)
    with pytest.raises(TaskError, match="which of a, b is the sandbox"):
        composition.read(write("services: {a: {image: x}, b: {image: x}}"))


def test_a_file_that_only_adds_services_leaves_the_sandbox_to_the_task_s_own_dockerfile(write):
    file = write("services: {db: {image: x}}")
    (file.parent / "Dockerfile").write_text("FROM y\n")
    found = composition.read(file)
    assert (found.main, list(found.document["services"])) == ("main", ["db", "main"])
    wanted = TaskEnvironment(compose=file, folder=file.parent, dockerfile=file.parent / "Dockerfile")
    assert found.made_of(wanted) == (None, file.parent, file.parent / "Dockerfile")
    prebuilt = TaskEnvironment(compose=file, image="made:1")
    assert composition.read(file, main="main").made_of(prebuilt) == ("made:1", None, None)


def test_an_image_beside_a_dockerfile_is_only_a_name_for_what_is_built(write):
    file = write("services: {main: {image: 'some:1'}}")
    dockerfile = file.parent / "Dockerfile"
    found = composition.read(file)
    built = TaskEnvironment(compose=file, folder=file.parent, dockerfile=dockerfile)
    assert found.made_of(built) == (None, file.parent, dockerfile)
    assert found.made_of(TaskEnvironment(compose=file)) == ("some:1", None, None)
    assert found.made_of(TaskEnvironment(compose=file, image="prebuilt:1")) == ("some:1", None, None)


def test_the_names_that_harbor_sets_are_filled_in_and_its_log_folders_are_ours(write):
    file = write(
        "services:\n  main:\n    build: {context: '${CONTEXT_DIR}', args: [A, B=2], target: last}\n"
        "    image: ${MAIN_IMAGE_NAME}\n    cpus: ${CPUS}\n    mem_limit: ${MEMORY}\n"
        "    volumes: ['${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}', "
        "{type: bind, source: '${HOST_ARTIFACTS_PATH}', target: '${ENV_ARTIFACTS_PATH}'}]\n"
        "  other: {image: x, volumes: ['${HOST_AGENT_LOGS_PATH}:${ENV_AGENT_LOGS_PATH}']}\n"
    )
    wanted = TaskEnvironment(compose=file, cpus=2, memory_bytes=1 << 30, env={"A": "1", "C": "${X}"})
    variables = composition.variables_of(wanted)
    found = composition.read(file, variables)
    assert found.context == file.parent
    asked = main_service(wanted, found, variables)
    assert (asked.target, asked.arguments) == ("last", {"A": "1", "B": "2"})
    main, other = (found.document["services"][name] for name in ("main", "other"))
    assert (main["cpus"], main["mem_limit"]) == ("2", "1024M")
    assert main["volumes"] == ["/logs/verifier", "/logs/artifacts"]
    assert other["volumes"] == ["/logs/agent"]
    assert "C" not in variables


def test_volumes_of_the_task_s_own_folder_are_fine(write):
    file = write(
        "services: {main: {image: x, env_file: vars, volumes: ["
        "'./data:/data:ro', 'named:/n', /anonymous, {type: volume, source: v, target: /v}, "
        "{type: tmpfs, target: /t}]}}\n"
        "volumes: {named: }"
    )
    assert composition.read(file).main == "main"


def test_engines_get_nothing_of_a_volume_but_its_name_and_target_and_only_read_the_task(write):
    file = write(
        "services: {main: {image: x, volumes: ["
        "'./data:/data', './data:/over:O,upperdir=/etc,workdir=/tmp', "
        "'named:/n:O,upperdir=/etc,workdir=/tmp', "
        "'named:/r:ro', /anonymous, {type: bind, source: ./data, target: /d, bind: {propagation: shared}}, "
        "{type: volume, source: v, target: /v, volume: {subpath: ../..}}]}}\n"
        "volumes: {named: , v: }"
    )
    data = file.parent / "data"
    assert composition.read(file).document["services"]["main"]["volumes"] == [
        f"{data}:/data:ro",
        f"{data}:/over:ro",
        "named:/n",
        "named:/r:ro",
        "/anonymous",
        f"{data}:/d:ro",
        {"type": "volume", "source": "v", "target": "/v"},
    ]


@pytest.mark.parametrize(
    ("service", "word"),
    [
        ("privileged: true", "privileged"),
        ("network_mode: host", "network_mode"),
        ("pid: host", "pid"),
        ("devices: [/dev/sda]", "devices"),
        ("cap_add: [SYS_ADMIN]", "cap_add"),
        ("ports: ['80:80']", "ports"),
        ("container_name: x", "container_name"),
        ("volumes: ['/:/host']", "outside"),
        ("volumes: ['/var/run/docker.sock:/s']", "outside"),
        ("volumes: ['../..:/host']", "outside"),
        ("volumes: ['~/.ssh:/s']", "outside"),
        ("volumes: ['${X:-/}:/s']", "outside"),
        ("volumes: ['./link:/s']", "outside"),
        ("volumes: [{type: bind, source: /, target: /s}]", "outside"),
        ("volumes: [3]", "a mapping is expected"),
        (
            "volumes: [{type: volume, source: v, target: '/v,type=bind,source=/'}]",
            "means something to engines",
        ),
        ("volumes: [{type: volume, source: 'v:/v', target: /v}]", "means something to engines"),
        ("env_file: [{path: /etc/passwd}]", "the name of a file"),
        ("env_file: 5", "a list is expected"),
        ("deploy: {replicas: '10000'}", "a whole number"),
        ("deploy: {replicas: 1.0e+4}", "a whole number"),
        ("volumes: /x", "a list is expected"),
        ("volumes: ['/logs/verifier:/etc']", "outside"),
        ("env_file: /elsewhere/.env", "outside"),
        ("build: /", "outside"),
        ("build: {context: ., dockerfile: ../../x}", "outside"),
        ("build: {context: ., ssh: [default]}", "ssh"),
    ],
)
def test_a_service_that_reaches_out_of_its_container_is_refused(write, service, word):
    file = write(f"services: {{main: {{image: x, {service}}}}}")
    (file.parent / "link").symlink_to("/")
    with pytest.raises(TaskError, match=word):
        composition.read(file)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("include: [other.yaml]\nservices: {main: {image: x}}", "include"),
        ("services: {main: {image: x}}\nnetworks: {n: {external: true}}", "external"),
        ("services: {main: {image: x}}\nnetworks: {n: {driver: macvlan}}", "bridge"),
        ("services: {main: {image: x}}\nvolumes: {v: {driver_opts: {device: /}}}", "driver_opts"),
        ("services:", "no service"),
        ("services: [x]", "a mapping is expected"),
        ("a: [", "not a compose file"),
        ("#" * 300_000, "larger than"),
    ],
)
def test_a_file_that_cannot_be_served_is_refused(write, text, word):
    with pytest.raises(TaskError, match=word):
        composition.read(write(text))


def test_without_a_program_for_compose_files_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="install podman-compose"):
        compose_program(PODMAN)

"""Compose files of tasks: what is read from them and what is refused."""

from __future__ import annotations

import pytest

from proctor.errors import SandboxError, TaskError
from proctor.sandbox.container import composition
from proctor.sandbox.container.compose import compose_program
from proctor.sandbox.podman import engine


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


def test_volumes_of_the_task_s_own_folder_are_fine(write):
    file = write(
        "services: {main: {image: x, env_file: vars, volumes: ["
        "'./data:/data:ro', 'named:/n', /anonymous, {type: volume, source: v, target: /v}, "
        "{type: tmpfs, target: /t}]}}\n"
        "volumes: {named: }"
    )
    assert composition.read(file).main == "main"


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
        ("#" * 300_000, "more than"),
    ],
)
def test_a_file_that_cannot_be_served_is_refused(write, text, word):
    with pytest.raises(TaskError, match=word):
        composition.read(write(text))


def test_without_a_program_for_compose_files_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="install podman-compose"):
        compose_program(engine())

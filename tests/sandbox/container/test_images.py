"""Images that podman builds, finds or cannot have."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sandbox.image.registry.test_logins import save_login

from proctor.errors import ImageError, TaskError
from proctor.model.task import Task, TaskEnvironment
from proctor.owner import owner_name
from proctor.sandbox import reaper
from proctor.sandbox.base import RootOptions, SandboxRequest
from proctor.sandbox.choose import open_images
from proctor.sandbox.container import leftovers
from proctor.sandbox.container.engine import DOCKER, PODMAN, call
from proctor.sandbox.container.engine_logins import EngineLogins

pytestmark = [pytest.mark.anyio, pytest.mark.needs("podman")]


@pytest.fixture
def label():
    return f"proctor.test={uuid.uuid4().hex}"


@pytest.fixture
async def images(podman, tmp_path, label):
    made = open_images(podman, tmp_path / "images")
    yield made
    await made.close()
    if (tmp_path / "images/logs").exists():
        await call(["podman", "image", "prune", "--all", "--force", "--filter", f"label={label}"])


@pytest.fixture
def task(tmp_path, podman_image, label):
    """A task with a Dockerfile of these lines over the test's own image."""

    def made(*lines, **more):
        folder = tmp_path / "task/environment"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data.txt").write_text("from the context\n")
        text = "\n".join([f"FROM {podman_image}", f"LABEL {label}", *lines])
        (folder / "Dockerfile").write_text(text + "\n")
        environment = TaskEnvironment(folder=folder, dockerfile=folder / "Dockerfile", **more)
        return Task(name="t", path=folder.parent, digest=str(hash(text)), environment=environment)

    return made


async def working_containers(backend, owner):
    return await leftovers._working_containers(backend.engine, await backend.adjustment(), owner)


def build_steps(folder):
    """Steps of builds that the runtime still knows, whose files are below a folder."""
    states = [read(each) for each in Path("/run/runc").glob("buildah-*/state.json")]
    return [each for each in states if bytes(folder) in each]


async def test_many_rollouts_and_processes_share_one_build(podman, images, task, tmp_path):
    lines = ("ENV A=1", "WORKDIR /srv/x", "COPY data.txt .", "RUN cat data.txt > copy", "USER tester")
    wanted = task(*lines)
    other = open_images(podman, tmp_path / "images")
    roots = await asyncio.gather(*(each.root(wanted) for each in (images, images, other, other)))
    assert len({root.image for root in roots}) == 1
    assert roots[0].env["A"] == "1"
    assert (roots[0].workdir, roots[0].user) == ("/srv/x", "tester")
    assert roots[0].digest
    logs = list((tmp_path / "images/logs").iterdir())
    assert len(logs) == 1
    before = logs[0].stat().st_mtime_ns
    assert (await open_images(podman, tmp_path / "images").root(wanted)).image == roots[0].image
    assert logs[0].stat().st_mtime_ns == before, "it was not built again"
    sandbox = podman.sandbox(SandboxRequest(name="t", root=roots[0]))
    await sandbox.start()
    result = await sandbox.exec(["sh", "-c", "id -u; cat copy; echo $A"])
    assert result.stdout == b"1000\nfrom the context\n1\n"
    await sandbox.stop()
    await other.close()


async def test_a_dockerfile_that_fails_says_its_last_lines_and_is_not_tried_for_ever(images, task, podman):
    wanted = task("RUN echo the-reason && exit 7")
    for _ in range(4):
        with pytest.raises(ImageError, match=r"podman build ended with exit code(?s:.)*\| the-reason"):
            await images.root(wanted)
    assert not await working_containers(podman, owner_name())


async def test_what_cannot_be_had_is_a_typed_error(images, tmp_path):
    def task(**environment):
        return Task(
            name="t", path=tmp_path, digest=str(environment), environment=TaskEnvironment(**environment)
        )

    with pytest.raises(ImageError, match="neither an image nor a Dockerfile"):
        await images.root(task())
    with pytest.raises(TaskError, match="no such Dockerfile"):
        await images.root(task(dockerfile=tmp_path / "Dockerfile"))
    with pytest.raises(ImageError, match="proctor-none:1 is not in the storage of podman"):
        await images.root(task(image="localhost/proctor-none:1"))


async def test_a_prebuilt_image_is_used_as_it_is(images, podman_image, tmp_path):
    environment = TaskEnvironment(image=podman_image)
    root = await images.root(Task(name="t", path=tmp_path, digest="d"), environment)
    assert root.image == root.digest
    assert root.workdir == "/"
    assert root.user == "root"
    assert (root.image_name, root.image_digest[:7]) == (podman_image, "sha256:")


async def test_a_built_image_is_pinned_by_what_it_begins_with(images, task, podman_image):
    prebuilt = await images.root(task("ENV A=1"))
    begun = await images.root(Task(name="t", path=Path("/"), digest="d"), TaskEnvironment(image=podman_image))
    assert prebuilt.image != begun.image
    assert (prebuilt.image_name, prebuilt.image_digest) == (begun.image_name, begun.image_digest)


async def test_commands_run_as_the_compose_file_says(images, task):
    made = task()
    file = made.environment.folder / "docker-compose.yaml"
    (file.parent / "vars").write_text("A=file\nB=file\n")
    service = "environment: {B: own}, env_file: vars, working_dir: /srv, user: tester"
    file.write_text(f"services: {{main: {{build: ., {service}}}}}\n")
    root = await images.root(replace(made, environment=replace(made.environment, compose=file)))
    assert (root.env["A"], root.env["B"], root.workdir, root.user) == ("file", "own", "/srv", "tester")


async def test_a_build_that_takes_too_long_is_ended_and_leaves_nothing(images, task, podman):
    with pytest.raises(ImageError, match="not built within 3 s"):
        await images.root(task("RUN sleep 54321", build_timeout_s=3.0))
    assert not await working_containers(podman, owner_name())
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x0054321" in read(path)]
    assert not list(podman.folder.glob("builds/*"))
    assert not build_steps(podman.folder)


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


BUILDER = """
import asyncio, sys
from pathlib import Path
from proctor.model.task import Task, TaskEnvironment
from proctor.sandbox.container.images import ContainerImages
from proctor.sandbox.container.backend import Containers
from proctor.sandbox.container.engine import PODMAN

async def main():
    backend = Containers(PODMAN, Path(sys.argv[1]), cache_dir=Path(sys.argv[2]))
    images = ContainerImages(Path(sys.argv[3]), backend)
    folder = Path(sys.argv[4])
    environment = TaskEnvironment(folder=folder, dockerfile=folder / "Dockerfile")
    print("building", flush=True)
    await images.root(Task(name="t", path=folder, digest="d", environment=environment))

asyncio.run(main())
"""


@pytest.mark.fault
@pytest.mark.parametrize("engine_too", [False, True], ids=["proctor killed", "its engine killed too"])
async def test_what_a_killed_builder_left_is_removed(podman, images, task, tmp_path, engine_too):
    number = "54322" if engine_too else "54323"
    folder = task("RUN true", f"RUN sleep {number}").environment.folder
    arguments = [tmp_path / "podman", podman.cache_dir, tmp_path / "images", folder]
    builder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BUILDER, *map(str, arguments), stdout=subprocess.PIPE
    )
    assert await builder.stdout.readline() == b"building\n"

    def sleeping():
        return [
            path
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if read(path).startswith(f"sleep\0{number}".encode())
        ]

    async with asyncio.timeout(60):
        while not sleeping():  # noqa: ASYNC110 - another process cannot set an event here
            await asyncio.sleep(0.05)
    builder.kill()
    await builder.wait()
    if engine_too:
        from proctor import processes

        mark = f"PROCTOR_BUILD={next((tmp_path / 'podman/podman-sandboxes').glob('*/builds/*')).name}"
        processes.kill_all(processes.marked(mark))
    owner = next(each.name for each in podman.state_dir.iterdir() if each != podman.folder and each.is_dir())
    assert await working_containers(podman, owner)
    removed = await podman.reap()
    assert any("build" in line for line in removed), removed
    assert not sleeping()
    assert not await working_containers(podman, owner)
    ours = {podman.folder, reaper.lock_of(podman.folder)}
    assert [each.name for each in podman.state_dir.iterdir() if each not in ours] == []
    assert not build_steps(podman.state_dir)
    tags = (await call(["podman", "images", "--format", "{{.Tag}}"])).out.split()
    assert not [tag for tag in tags if tag.startswith(f"build-{owner}.")]


async def test_the_build_of_a_compose_file_gets_its_arguments_and_its_stage(images, task, podman_image):
    made = task("ARG WHO=nobody", "ENV SAID=$WHO", f"FROM {podman_image}", "ENV LAST=1")
    folder = made.environment.folder
    dockerfile = folder / "Dockerfile"
    dockerfile.write_text(
        dockerfile.read_text().replace(f"FROM {podman_image}", f"FROM {podman_image} AS one", 1)
    )
    file = folder / "docker-compose.yaml"
    file.write_text(
        "services: {main: {image: '${MAIN_IMAGE_NAME}', "
        "build: {context: '${CONTEXT_DIR}', target: one, args: [WHO]}}}"
    )
    environment = replace(made.environment, compose=file, env={"WHO": "you"})
    root = await images.root(made, environment)
    assert (root.env["SAID"], root.service, root.compose) == ("you", "main", file)
    assert "LAST" not in root.env


async def test_a_project_gets_an_image_of_the_storage_only_where_it_was_granted(
    podman, podman_image, tmp_path, task, monkeypatch
):
    """It may have come there with a login; without one it cannot be had here."""
    named = Task(name="t", path=tmp_path, digest="d", environment=TaskEnvironment(image=podman_image))
    for asked in (named, task("RUN true")):
        refused = open_images(podman, tmp_path / "images", RootOptions(project="other"))
        with pytest.raises(ImageError):
            await refused.root(asked)
        await refused.close()
    monkeypatch.setenv("PROCTOR_REGISTRY_LOGINS", f"{podman_image.partition('/')[0]}=team")
    granted = open_images(podman, tmp_path / "images", RootOptions(project="team"))
    assert (await granted.root(named)).image
    await granted.close()


def test_engines_pull_without_the_logins_of_this_machine_where_none_was_granted(tmp_path, monkeypatch):
    monkeypatch.setenv("PROCTOR_REGISTRY_LOGINS", "ghcr.io/acme=team")
    config = tmp_path / "no-login/config.json"
    options = RootOptions(project="team")
    for engine, words in (
        (PODMAN, ("pull", "--quiet", "--authfile", str(config))),
        (DOCKER, ("--config", str(config.parent), "pull", "--quiet")),
    ):
        logins = EngineLogins(engine, tmp_path, options)
        assert logins.before_pull("ghcr.io/other/x:1") == words
        assert logins.before_pull("ghcr.io/acme/x:1") == ("pull", "--quiet")
        assert "always" in " ".join(logins.build_options(["ghcr.io/other/x"])) or engine is DOCKER
        assert logins.build_options(["ghcr.io/acme/x"]) == ()
        assert logins.build_options([]) != ()
    assert EngineLogins(PODMAN, tmp_path, RootOptions()).build_options([]) == ()
    save_login(tmp_path / "docker/config.json", "ghcr.io")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with pytest.raises(ImageError, match="was not granted"):
        EngineLogins(DOCKER, tmp_path, options).build_options(["ghcr.io/other/x"])

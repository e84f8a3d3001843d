"""The docker back end against a program that notes how it was called: there is no engine to ask here.

What the containers do is tested with podman, which runs the same code; this shows the words that docker is
told, and what becomes of its answers.
"""

from __future__ import annotations

import json
import os
import socket
from itertools import pairwise
from pathlib import Path

import pytest

from proctor import owner
from proctor.errors import SandboxError, TaskError
from proctor.model.task import Task, TaskEnvironment
from proctor.sandbox import reaper
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.choose import choose, open_backend
from proctor.sandbox.container import engine as engines
from proctor.sandbox.container.backend import Containers
from proctor.sandbox.container.engine import DOCKER, Adjustment
from proctor.sandbox.container.images import ContainerImages
from proctor.sandbox.container.leftovers import place_name
from proctor.sandbox.container.sandbox import ContainerSandbox

pytestmark = pytest.mark.anyio

SCRIPT = """#!/usr/bin/env python3
import json, os, sys
NOTES = os.path.dirname(sys.argv[0]) + "/notes"
with open(NOTES, "a") as notes:
    notes.write(json.dumps(sys.argv[1:]) + "\\n")
words = sys.argv[1:]
if words[0] == "--version":
    print("Docker version 99")
elif words[0] == "run" and any("localhost/proctor-empty:build-" in word for word in words):
    import subprocess
    sources = dict(word.split(",src=")[1].split(",dst=") for word in words if word.startswith("type=bind"))
    inside = {target.removesuffix(",ro"): source for source, target in sources.items()}
    subprocess.Popen(
        [inside["/run/.proctor/init"], "container", "control"],  # the path of a socket is short
        cwd=inside["/run/.proctor/socket"],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
elif words[0] in ("run", "pull"):
    sys.exit("docker: the daemon said no")
elif words[0] == "rm":
    sys.exit("Error response from daemon: No such container: x")
elif words[1:2] == ["ls"]:
    print(f"{words[0]}-of-{words[-1]}")
elif words[0] == "ps":
    print(os.environ.get("DOCKER_TEST_ROWS", ""))
elif words[:2] == ["image", "inspect"] and os.path.exists(NOTES + ".built"):
    print(json.dumps([{"Id": "sha256:abc", "Config": {"Env": ["A=b=c"], "WorkingDir": "/w", "User": ""}}]))
elif words[:2] == ["image", "inspect"]:
    sys.exit("No such image")
elif words[0] == "build":
    import http.client
    print("STEP 1", os.environ["DOCKER_BUILDKIT"])
    given = dict(word.split("=", 1) for word in words if word.startswith("http_proxy="))
    proxy = http.client.HTTPConnection("127.0.0.1", int(given["http_proxy"].rpartition(":")[2]), timeout=20)
    proxy.request("GET", "http://127.0.0.1:" + os.environ["DOCKER_TEST_PORT"] + "/")
    print("THE PROXY SAYS", proxy.getresponse().status)
    open(NOTES + ".built", "w").close()
elif words[0] == "compose":
    if "up" in words:
        sys.exit("no services today")
"""


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """Every command line the program was called with."""
    program = tmp_path / "bin/docker"
    program.parent.mkdir()
    program.write_text(SCRIPT)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return lambda: [json.loads(line) for line in (tmp_path / "bin/notes").read_text().splitlines()]


@pytest.fixture
def backend(tmp_path, cache_dir):
    made = Containers(DOCKER, tmp_path / "home", cache_dir=cache_dir)
    made._fit = Adjustment(ulimits=("--ulimit", "nofile=1024:1024"))
    return made


async def test_a_container_is_asked_for_with_every_limit_and_removed_at_once(notes, backend):
    request = SandboxRequest(
        name="t",
        root=Root(image="img", binds={"/opt/py": Path("/usr/lib")}),
        limits=Limits(cpus=1.5, memory_bytes=1000, pids=10),
        labels={"run": "r"},
    )
    with pytest.raises(SandboxError, match="docker could not start a container: docker: the daemon said no"):
        await backend.sandbox(request).start()
    run, remove = notes()
    name = run[run.index("--name") + 1]
    assert remove == ["rm", "--force", "--volumes", name]
    assert run[:3] == ["run", "--detach", "--rm"]
    assert run[-5:-2] == ["--entrypoint", "/run/.proctor/init", "img"]
    assert run[-2:] == ["container", "/run/.proctor/socket/control"]
    pairs = list(pairwise(run))
    for pair in (
        ("--network", "none"), ("--pids-limit", "14"), ("--memory", "1000b"), ("--memory-swap", "1000b"),
        ("--cpus", "1.5"), ("--cap-drop", "all"), ("--security-opt", "no-new-privileges"), ("--user", "0:0"),
        ("--pull", "never"), ("--label", "proctor.run=r"), ("--ulimit", "nofile=1024:1024"),
        ("--mount", "type=bind,src=/usr/lib,dst=/opt/py,ro"), ("--log-driver", "none"),
    ):  # fmt: skip
        assert pair in pairs, pair
    assert not {"--http-proxy=false", "--time", "--ignore", "--privileged"} & set(run + remove)
    assert ("--cap-add", "MKNOD") not in pairs


async def test_containers_begin_without_a_network_and_groups_may_be_missing(notes, backend):
    request = SandboxRequest(name="t", root=Root(image="img"), limits=Limits(network="public"))
    with pytest.raises(SandboxError):
        await ContainerSandbox(backend, request, Adjustment(limits=())).start()
    run = notes()[0]
    assert ("--network", "none") in list(pairwise(run))
    assert any("dst=/etc/resolv.conf" in word for word in run)
    assert not {"--pids-limit", "--memory"} & set(run)


async def test_only_containers_of_dead_owners_are_removed(notes, backend, monkeypatch, tmp_path):
    other = f"1-{place_name().partition('-')[2]}"
    rows = [
        f"alive\t{backend.folder.name}\t{place_name()}",
        f"dead\t{os.getpid()}-1\t{place_name()}",
        f"elsewhere\t{os.getpid()}-1\t{other}",
        f"rebooted\t{backend.folder.name}\t{place_name().partition('-')[0]}-another-boot",
        f"held\t{os.getpid()}-1\t{place_name()}\t{tmp_path / 'held'}",
        f"let go\t{os.getpid()}-1-00000000\t{other}\t{tmp_path / 'free'}",
        f"unseen\t{os.getpid()}-1-00000000\t{other}\t{tmp_path / 'gone'}",
        "broken",
    ]
    (tmp_path / "free").touch()
    owner.hold(tmp_path / "held")
    monkeypatch.setenv("DOCKER_TEST_ROWS", "\n".join(rows))
    assert await backend.reap() == ("container dead", "container rebooted", "container let go")
    owner.release(tmp_path / "held")
    assert notes()[0][:4] == ["ps", "--all", "--no-trunc", "--filter"]
    assert notes()[1] == ["rm", "--force", "--volumes", "dead", "rebooted", "let go"]


async def test_networks_and_volumes_of_dead_projects_are_removed(notes, backend):
    dead = backend.state_dir / f"{os.getpid()}-1"
    dead.mkdir(parents=True)
    (dead / "s0.json").write_text("{}")
    removed = await backend.reap()
    for kind in ("network", "volume"):
        name = f"{kind}-of-label=proctor.lock={reaper.lock_of(dead)}"
        assert f"{kind} {name}" in removed
        assert [kind, "rm", name] in notes()
    assert not dead.exists()


@pytest.fixture
def private():
    """A service of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.mark.needs("root")
async def test_an_image_is_built_under_the_name_of_its_content_in_a_network_with_our_proxy_alone(
    notes, backend, tmp_path, monkeypatch, private
):
    """The container of that network is played by our init on this machine."""
    monkeypatch.setenv("DOCKER_TEST_PORT", str(private.getsockname()[1]))
    folder = tmp_path / "environment"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\n")
    environment = TaskEnvironment(folder=folder, dockerfile=folder / "Dockerfile")
    images = ContainerImages(tmp_path / "images", backend)
    root = await images.root(Task(name="t", path=tmp_path, digest="d", environment=environment))
    assert root.image == "abc"
    assert root.env == {"A": "b=c"}
    assert (root.workdir, root.user) == ("/w", "root")
    build = next(words for words in notes() if words[0] == "build")
    run = next(words for words in notes() if words[0] == "run")
    assert ("--network", "none") in list(pairwise(run))
    assert ("--network", f"container:{run[run.index('--name') + 1]}") in list(pairwise(build))
    assert {"http_proxy", "https_proxy", "no_proxy"} < {word.partition("=")[0] for word in build}
    (log,) = (tmp_path / "images/logs").iterdir()
    assert log.read_text() == "STEP 1 0\nTHE PROXY SAYS 502\n"
    private.settimeout(0)
    with pytest.raises(BlockingIOError):
        private.accept()
    assert build[-3:] == ["--file", str(folder / "Dockerfile"), str(folder)]
    assert build[build.index("--tag") + 1].startswith("localhost/proctor-task:")
    assert "--isolation" not in build


COMPOSE = """
services:
  main: {build: ., command: [sleep, infinity], depends_on: [db], volumes: [./data:/data:ro, kept:/kept]}
  db:
    build: {context: ./db, args: {A: b}}
    environment: {P: "${SECRET:-none}"}
    env_file: db.env
    labels: [a=b, c]
    volumes: [{type: bind, source: data, target: /d}, {type: volume, source: kept, target: /kept}]
networks: {back: {}}
volumes: {kept: }
"""


async def test_a_compose_file_is_served_with_our_init_in_its_main_service(
    notes, backend, tmp_path, monkeypatch
):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "x")
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE)
    request = SandboxRequest(
        name="t",
        root=Root(image="img", compose=file, companions={"db": "made"}),
        limits=Limits(memory_bytes=1000),
        env={"SECRET": "task's"},
    )
    seen = {}

    async def look(argv, **options):
        if argv[1] == "compose":
            assert argv.count("-f") == 1, "programs differ in how they join two"
            seen.setdefault("project", json.loads(Path(argv[argv.index("-f") + 1]).read_text()))
        seen["env"] = options.get("env") or seen["env"]
        return await call(argv, **options)

    from proctor.sandbox.container import compose
    from proctor.sandbox.container.engine import call

    monkeypatch.setattr(compose, "call", look)
    with pytest.raises(SandboxError, match="could not start the task's services: no services today"):
        await backend.sandbox(request).start()
    up, down, *looks = notes()
    assert (up[0], up[-6:-2]) == ("compose", ["up", "-d", "--no-build", "--no-deps"])
    assert up[-2:] == ["main-network", "db-network"], "networks come before anything that runs in them"
    assert down[-4:] == ["down", "-t", "0", "-v"]
    assert {look[0] for look in looks} == {"network", "volume"}
    main, db = (seen["project"]["services"][name] for name in ("main", "db"))
    assert main["image"] == "img"
    assert "build" not in main
    assert main["entrypoint"][0] == "/run/.proctor/init"
    assert (main["command"], main["mem_limit"], main["cap_drop"]) == ([], "1000b", ["ALL"])
    assert main["ulimits"] == {"nofile": {"soft": 1024, "hard": 1024}}
    assert main["depends_on"] == ["db"]
    assert main["volumes"][:2] == [f"{tmp_path}/data:/data:ro", "kept:/kept"]
    assert ("build" in db, db["image"], db["pull_policy"]) == (False, "made", "never")
    for name, service in (("main", main), ("db", db)):
        assert service["network_mode"] == f"service:{name}-network"
        assert not {"networks", "hostname", "expose"} & service.keys()
        assert (service["cap_drop"], "NET_RAW" in service["cap_add"]) == (["ALL"], False)
        holder = seen["project"]["services"][f"{name}-network"]
        assert holder["entrypoint"] == ["/run/.proctor/init", "container", "/run/.proctor/socket/waiting"]
        assert holder["networks"] == {"default": {"aliases": [name]}}
        assert (holder["image"], holder["command"], holder["restart"]) == ("img", [], "no")
        assert "proctor.project" in holder["labels"]
    assert seen["project"]["services"]["main-network"]["hostname"] == "sandbox"
    assert db["env_file"] == [f"{tmp_path}/db.env"]
    assert db["volumes"][0].startswith(f"{tmp_path}/data:")
    assert db["volumes"][1]["source"] == "kept"
    assert {"a", "c", "proctor.sandbox"} < db["labels"].keys()
    assert all(each["internal"] for each in seen["project"]["networks"].values())
    assert set(seen["project"]["networks"]) == {"default", "back"}
    assert "proctor.sandbox" in seen["project"]["volumes"]["kept"]["labels"]
    assert seen["env"]["SECRET"] == "task's"
    assert "SECRET_OF_THE_HOST" not in seen["env"]
    assert [each.name for each in backend.folder.iterdir()] == ["owner.json"]


async def test_a_compose_file_that_reaches_out_is_the_author_s_fault(notes, backend, tmp_path):
    file = tmp_path / "compose.yaml"
    file.write_text("services: {main: {image: x, privileged: true}}")
    with pytest.raises(TaskError, match="'privileged' is not allowed"):
        await backend.sandbox(SandboxRequest(name="t", root=Root(image="img", compose=file))).start()


def test_obstacles_are_named(monkeypatch, tmp_path, notes):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(engines, "DOCKER_SOCKET", tmp_path / "none.sock")
    assert "no docker engine answers" in DOCKER.obstacle()
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    assert "must be on this machine" in DOCKER.obstacle()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/there")
    (tmp_path / "there").touch()
    assert DOCKER.obstacle() == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert DOCKER.obstacle() == "docker is not installed"


async def test_both_back_ends_are_chosen_by_name(tmp_path):
    for name in ("podman", "docker"):
        assert choose(name) == name
        assert open_backend(name, tmp_path).name == name

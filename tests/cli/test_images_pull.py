from __future__ import annotations

import itertools
import json
import os
import pty
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from tests.sandbox.image.archives import layer
from tests.sandbox.image.registry.servers import Proxy, Pusher, free_port, registry

from proctor.cli.main import main

pytestmark = pytest.mark.needs("bubblewrap", "docker-registry")
_numbers = itertools.count()


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture
def name(host):
    return f"{host}/cli/r{next(_numbers)}"


@pytest.fixture
def push(host, name):
    def pushed(tag: str = "1", **files: bytes) -> str:
        repository = name.partition("/")[2]
        Pusher(host=host).image(repository, tag, [layer(files or {"a": b"1"})])
        return f"{name}:{tag}"

    return pushed


def test_images_are_pulled_listed_and_refreshed(push, name, capsys):
    one, two = push("1"), push("2", b=b"2")
    assert main(["images", "pull", one, two]) == 0
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()] == ["[1/2]", "[2/2]"]
    assert "1 of 1 layers new" in shown.out
    assert shown.err == ""
    assert main(["images", "ls"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0].split() == ["image", "digest", "layers", "size", "from"]
    assert one in listed[1]
    assert "registry" in listed[1]
    assert main(["images", "pull", one]) == 0
    assert "up to date" in capsys.readouterr().out
    push("1", c=b"3")
    assert main(["images", "pull", one, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["image"], row["new_layers"]) == (one, 1)
    assert row["digest"].startswith("sha256:")
    assert main(["images", "ls", "--json"]) == 0
    by_name = {each["reference"]: each for each in json.loads(capsys.readouterr().out)}
    assert by_name[one]["digest"] == row["digest"]
    assert by_name[one]["kept"]


def test_one_image_that_cannot_be_had_does_not_keep_the_others_back(push, name, capsys):
    good = push()
    bad = f"127.0.0.1:{free_port()}/x:1"
    assert main(["images", "pull", bad, good]) == 4
    shown = capsys.readouterr()
    assert f"{bad} cannot be pulled" in shown.err
    assert good in shown.out
    assert main(["images", "pull", f"{name}:gone", "--json"]) == 4
    (row,) = json.loads(capsys.readouterr().out)
    assert "no image of that name and tag" in row["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Upper:1"], "'library/Upper' is not a repository's name"),
        (["x:1", "--platform", "linux"], "'linux' is not a platform"),
        ([], "no image is named"),
        (["x@sha256:12"], "is not a digest"),
        (["--for", "nowhere"], "no such task folder"),
    ],
)
def test_a_mistake_is_said_before_anything_starts(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["images", "pull", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not Path(os.environ["PROCTOR_HOME"], "cache/images").exists()


def test_a_bad_mirror_is_a_mistake_too(capsys, monkeypatch):
    monkeypatch.setenv("PROCTOR_REGISTRY_MIRRORS", "docker.io")
    assert main(["images", "pull", "x:1"]) == 2
    assert "'docker.io' must be REGISTRY=HOST" in capsys.readouterr().err


def test_every_image_that_tasks_name_is_pulled(push, name, make_task, tmp_path, capsys):
    for tag in ("base", "tool", "prebuilt", "beside", "zipped"):
        push(tag, **{tag: b"1"})
    first, second, third = make_task("first"), make_task("second"), make_task("third")
    (first / "environment/Dockerfile").write_text(
        f"ARG TAG=base\nFROM {name}:${{TAG}} AS made\nFROM made\nCOPY --from={name}:tool /tool /\n"
        "COPY --from=made /x /\nFROM scratch\nCOPY --from=1 /x /\n"
    )
    toml = (second / "task.toml").read_text()
    (second / "task.toml").write_text(toml + f'docker_image = "{name}:prebuilt"\n')
    (third / "environment/Dockerfile").unlink()
    (third / "environment/docker-compose.yaml").write_text(
        f"services:\n  main: {{image: '${{MAIN_IMAGE_NAME}}'}}\n  db: {{image: '{name}:beside'}}\n"
        "  own: {build: own}\n"
    )
    (third / "environment/own").mkdir()
    (third / "environment/own/Dockerfile").write_text(f"FROM {name}:base\n")
    broken = make_task("broken")
    (broken / "environment/Dockerfile").write_text("FRUM x\n")
    zipped = make_task("zipped")
    (zipped / "environment/Dockerfile").write_text(f"FROM {name}:zipped\n")
    with zipfile.ZipFile(tmp_path / "zipped.zip", "w") as out:
        for file in zipped.rglob("*"):
            out.write(file, file.relative_to(zipped))
    shutil.rmtree(zipped)
    code = main(["images", "pull", "--for", str(tmp_path / "tasks"), "--for", str(tmp_path / "zipped.zip")])
    shown = capsys.readouterr()
    assert code == 0, shown
    pulled = {line.split()[1].rpartition(":")[2] for line in shown.out.splitlines()}
    assert pulled == {"base", "tool", "prebuilt", "beside", "zipped"}
    assert "skipped t/broken" in shown.err
    assert "FRUM" in shown.err


def test_tasks_that_need_no_image_are_said_to(make_task, capsys, tmp_path):
    folder = make_task("empty")
    (folder / "environment/Dockerfile").write_text("FROM scratch\n")
    assert main(["images", "pull", "--for", str(folder)]) == 0
    assert "need no image" in capsys.readouterr().out


def test_a_terminal_sees_how_far_it_is(host, name, tmp_path):
    repository = name.partition("/")[2]
    Pusher(host=host).image(repository, "1", [layer({"a": os.urandom(400_000)})], kind="plain")
    go_on = threading.Event()

    def rule(seen, answer):
        if "/blobs/" in seen.path and len(answer.body) > 100_000:
            answer.send, answer.then = 200_000, go_on

    leader, follower = pty.openpty()
    with Proxy(host, rule) as proxy:
        command = [sys.executable, "-m", "proctor.cli.main", "images", "pull", f"{proxy.host}/{repository}:1"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, cwd=tmp_path)
        os.close(follower)
        seen = ""
        while " of 4" not in seen:
            seen += os.read(leader, 100_000).decode()
        go_on.set()
        out, _ = process.communicate(timeout=60)
    os.close(leader)
    assert process.returncode == 0
    assert "░" in seen
    assert b"1 of 1 layers new" in out

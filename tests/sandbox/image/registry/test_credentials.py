from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from proctor.sandbox.image.registry.credentials import Login, find_login


def auth(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def write(file: Path, value: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(value if isinstance(value, str) else json.dumps(value))


@pytest.fixture
def environ(tmp_path):
    return {
        "HOME": str(tmp_path / "home"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
    }


def test_the_first_file_that_has_a_login_counts(environ, tmp_path):
    places = [
        "home/.docker/config.json",
        "home/.config/containers/auth.json",
        "run/containers/auth.json",
        "own.json",
    ]
    assert find_login("r.example", environ=environ).login is None
    for number, place in enumerate(places):
        write(tmp_path / place, {"auths": {"r.example": auth(f"user{number}", "p")}})
        if place == "own.json":
            environ["REGISTRY_AUTH_FILE"] = str(tmp_path / place)
        found = find_login("r.example", environ=environ).login
        assert found
        assert (found.user, found.source) == (f"user{number}", str(tmp_path / place))
    environ["DOCKER_CONFIG"] = str(tmp_path / "elsewhere")
    write(tmp_path / "elsewhere/config.json", {"auths": {"other.example": auth("e", "p")}})
    assert find_login("other.example", environ=environ).login.user == "e"


@pytest.mark.parametrize(
    ("key", "registry"),
    [
        ("https://index.docker.io/v1/", "docker.io"),
        ("docker.io", "docker.io"),
        ("registry-1.docker.io", "docker.io"),
        ("https://r.example/v2/", "r.example"),
        ("r.example:5000", "r.example:5000"),
        ("r.example/team", "r.example"),
        ("docker.io/team/tool", "docker.io"),
    ],
)
def test_keys_are_read_as_docker_and_podman_write_them(environ, tmp_path, key, registry):
    write(tmp_path / "home/.docker/config.json", {"auths": {key: auth("me", "pass:word")}})
    found = find_login(registry, "team/tool", environ).login
    assert found
    assert (found.user, found.password) == ("me", "pass:word")
    assert find_login("another.example", "team/tool", environ).login is None


def test_the_most_specific_entry_counts(environ, tmp_path):
    entries = {"r.example": auth("all", "p"), "r.example/team": auth("team", "p")}
    write(tmp_path / "run/containers/auth.json", {"auths": entries})
    assert find_login("r.example", "team/tool", environ).login.user == "team"
    assert find_login("r.example", "teams/tool", environ).login.user == "all"


def test_tokens_and_plain_fields_are_understood(environ, tmp_path):
    entries = {
        "a": {"identitytoken": "i"},
        "b": {"registrytoken": "r"},
        "c": {"username": "u", "password": "p"},
        "d": {},
        "e": {"auth": "%%%"},
        "f": "text",
    }
    write(tmp_path / "home/.docker/config.json", {"auths": entries})
    found = {key: find_login(key, environ=environ).login for key in entries}
    assert found["a"].identity_token == "i"
    assert found["b"].registry_token == "r"
    assert found["c"].basic == "Basic dTpw"
    assert [found[key] for key in "def"] == [None, None, None]


@pytest.mark.parametrize("text", ["{", "[]", '"x"', '{"auths": 3, "credHelpers": 4}'])
def test_a_file_that_is_none_is_passed_over(environ, tmp_path, text):
    write(tmp_path / "run/containers/auth.json", text)
    write(tmp_path / "home/.docker/config.json", {"auths": {"r": auth("me", "p")}})
    assert find_login("r", environ=environ).login.user == "me"


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ('echo \'{"Username": "<token>", "Secret": "i"}\'', ""),
        ("exit 1", ""),
        ("echo broken", "no usable answer"),
        ("echo '[1]'", "no usable answer"),
    ],
)
def test_answers_of_a_helper(environ, tmp_path, script, note):
    write(tmp_path / "bin/docker-credential-v", f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin/docker-credential-v").chmod(0o755)
    write(tmp_path / "home/.docker/config.json", {"credHelpers": {"r": "v", "s": "../v", "t": "w"}})
    found = find_login("r", environ=environ)
    assert note in found.note
    assert (found.login is not None) == ("token" in script)
    assert not found.login or found.login.identity_token == "i"
    assert "which is not on PATH" in find_login("s", environ=environ).note
    assert "docker-credential-w, which is not on PATH" in find_login("t", environ=environ).note


def test_a_login_does_not_show_its_secrets():
    login = Login(user="me", password="hidden", identity_token="also", registry_token="this too")
    assert "me" in repr(login)
    assert not {"hidden", "also", "this too"} & set(repr(login).replace("'", " ").split())

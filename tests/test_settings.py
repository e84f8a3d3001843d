from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import UsageError
from proctor.settings import Settings, load_settings


def test_the_defaults_are_a_store_beside_the_work():
    settings = load_settings({})
    assert settings == Settings()
    assert settings.store_url == ".proctor/proctor.db"
    assert settings.blobs_url == ".proctor/blobs"
    assert settings.cache_dir == Path(".proctor/cache")


def test_blobs_may_be_elsewhere():
    assert load_settings({"PROCTOR_BLOBS": "file:///shared/blobs"}).blobs_url == "file:///shared/blobs"


def test_the_environment_wins_over_the_file(tmp_path):
    (tmp_path / "p.toml").write_text('home = "/from/file"\nlease_s = 5\nsandbox = "podman"\n')
    environ = {"PROCTOR_SETTINGS": str(tmp_path / "p.toml"), "PROCTOR_HOME": "/from/env"}
    settings = load_settings(environ)
    assert (settings.home, settings.lease_s, settings.sandbox) == (Path("/from/env"), 5.0, "podman")


def test_the_older_name_of_the_sandbox_setting_is_understood():
    assert load_settings({"SANDBOX_BACKEND": "podman"}).sandbox == "podman"
    assert load_settings({"SANDBOX_BACKEND": "podman", "PROCTOR_SANDBOX": "fake"}).sandbox == "fake"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hom = 1\n", "'hom' is not a setting"),
        ("home = \n", "not valid TOML"),
        ('lease_s = "long"\n', "not a float"),
    ],
)
def test_a_wrong_settings_file_says_what_is_wrong(tmp_path, text, message):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        load_settings({}, tmp_path / "p.toml")


def test_a_settings_file_that_was_asked_for_must_exist(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        load_settings({"PROCTOR_SETTINGS": str(tmp_path / "none.toml")})

from __future__ import annotations

import pytest

from proctor.errors import UsageError
from proctor.tasks.address import git_address, git_url, inner_path, redacted, without_secrets

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("written", "url", "ref", "path"),
    [
        (f"git+https://host/o/r.git@{COMMIT}#tasks/a", "https://host/o/r.git", COMMIT, "tasks/a"),
        (f"git+https://host/o/r@{COMMIT.upper()}", "https://host/o/r", COMMIT, ""),
        ("git+http://host:8080/r.git@feature/x", "http://host:8080/r.git", "feature/x", ""),
        ("git+ssh://git@host/o/r.git@v1#./a/b/", "ssh://git@host/o/r.git", "v1", "a/b"),
        ("git+ssh://git@host/o/r.git", "ssh://git@host/o/r.git", "HEAD", ""),
        ("git+file:///tmp/a@b/r.git", "file:///tmp/a@b/r.git", "HEAD", ""),
        ("git+https://[::1]:4443/r.git@main", "https://[::1]:4443/r.git", "main", ""),
    ],
)
def test_an_address_has_a_repository_a_ref_and_a_path(written, url, ref, path):
    found = git_address(written)
    assert (found.repository.url, found.ref, found.path) == (url, ref, path)
    assert git_address(found.reference) == found


@pytest.mark.parametrize(
    "written",
    [
        "git+https://host/r.git@--upload-pack=evil",
        "git+https://host/r.git@a..b",
        "git+https://host/r.git@",
        "git+ext::sh -c evil",
        "git+ext://host/r.git",
        "git+https://host",
        "git+https:///r.git",
        "git+https://-oProxy/r.git",
        "git+ssh://-oProxyCommand=evil/r.git",
        "git+ssh://-o@host/r.git",
        "git+ssh://host/-r.git",
        "git+https://host/r.git?token=x@main",
        "git+file://elsewhere/r.git",
        "git+https://host/r.git@main#../up",
        "git+https://host/r.git@main#/etc",
        "git+https://host/r.git@main#a/.git/b",
        "git+host/r.git",
    ],
)
def test_hostile_and_broken_addresses_are_refused(written):
    with pytest.raises(UsageError):
        git_address(written)


@pytest.mark.parametrize("written", ["-x", "", "a b", "/local/path", "ext::sh", "git://host/r", "x\n"])
def test_what_is_no_address_of_a_repository_is_refused(written):
    with pytest.raises(UsageError):
        git_url(written)


def test_the_short_form_of_ssh_is_understood():
    found = git_url("git@github.com:org/repo.git")
    assert (found.scheme, found.name) == ("ssh", "repo")


def test_names_and_passwords_are_split_off_and_never_shown():
    found = git_url("https://me:p%40ss@host/r.git")
    assert found.url == "https://host/r.git"
    assert found.credentials == "me:p@ss"
    assert "p@ss" not in repr(found)
    assert git_url("ssh://git:pw@host/r.git").url == "ssh://git@host/r.git"


def test_a_password_with_a_slash_is_not_repeated_in_the_error():
    with pytest.raises(UsageError) as caught:
        git_url("https://me:pa/ss@host/r.git")
    assert "pa" not in str(caught.value).replace("path", "")


def test_redaction_keeps_what_is_no_secret():
    assert redacted("git+https://tok@host/r.git@main#a") == "git+https://host/r.git@main#a"
    assert redacted("git+https://a:b@c@host/r") == "git+https://host/r"
    assert redacted("git+ssh://git:pw@host/r") == "git+ssh://git@host/r"
    assert redacted("https://host/r@main") == "https://host/r@main"
    kept = {"env": {"DB": "postgres://u:p@h/x"}, "tasks": [{"dataset": "git+https://t@h/r"}], "n": 1}
    assert without_secrets(kept) == {
        "env": {"DB": "postgres://u:p@h/x"},
        "tasks": [{"dataset": "git+https://h/r"}],
        "n": 1,
    }


def test_control_characters_in_a_path_are_refused():
    with pytest.raises(UsageError):
        inner_path("a\nb", "x")

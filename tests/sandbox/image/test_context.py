from __future__ import annotations

import os
from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.sandbox.image.context import Context, digest, stage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("outside")
    place = tmp_path / "context"
    (place / "src/deep").mkdir(parents=True)
    (place / "a.txt").write_text("a")
    (place / "b.txt").write_text("b")
    (place / "src/one.py").write_text("1")
    (place / "src/deep/two.py").write_text("2")
    return place


def names(folder: Path, *patterns: str, ignore: str | None = None) -> list[str]:
    if ignore is not None:
        (folder / ".dockerignore").write_text(ignore)
    context = Context(folder, folder / "Dockerfile")
    return sorted(each.name for pattern in patterns for each in context.select(pattern, "Dockerfile:1"))


def test_a_file_is_itself_and_a_folder_is_its_content(folder):
    assert names(folder, "a.txt") == ["a.txt"]
    assert names(folder, "/src") == ["deep", "deep/two.py", "one.py"]
    assert names(folder, "./src/deep/") == ["two.py"]


def test_patterns_stop_at_slashes(folder):
    assert names(folder, "*.txt") == ["a.txt", "b.txt"]
    assert names(folder, "s*/*.py") == ["one.py"]
    assert names(folder, "[!a].txt") == ["b.txt"]


@pytest.mark.parametrize("pattern", ["../secret", "../src", "src/../../secret", "nothing", "no*thing"])
def test_what_is_not_in_the_context_is_refused(folder, pattern):
    with pytest.raises(TaskError, match=r"Dockerfile:1.*context"):
        names(folder, pattern)


@pytest.mark.parametrize("target", ["../secret", "/secret", "../../../../../../etc/hostname"])
def test_links_cannot_lead_out_of_the_context(folder, target):
    (folder / "link").symlink_to(target)
    with pytest.raises(TaskError, match="not in the build context"):
        names(folder, "link")
    (folder / "way").symlink_to("..")
    with pytest.raises(TaskError, match="not in the build context"):
        names(folder, "way/secret")


def test_links_are_followed_within_the_context_as_if_it_were_the_root(folder):
    (folder / "to_file").symlink_to("/src/one.py")
    (folder / "to_folder").symlink_to("src/deep")
    context = Context(folder, folder / "Dockerfile")
    assert context.select("to_file", "")[0].source == (folder / "src/one.py").resolve()
    assert names(folder, "to_folder") == ["two.py"]


def test_links_in_a_copied_folder_stay_links(folder, tmp_path):
    (folder / "src/out").symlink_to("/etc/passwd")
    context = Context(folder, folder / "Dockerfile")
    stage(context.select("src", ""), tmp_path / "staged")
    assert (tmp_path / "staged/out").readlink() == Path("/etc/passwd")
    assert (tmp_path / "staged/deep/two.py").read_text() == "2"


def test_a_circle_of_links_ends(folder):
    (folder / "x").symlink_to("y")
    (folder / "y").symlink_to("x")
    with pytest.raises(TaskError, match="points to itself"):
        names(folder, "x")


def test_devices_and_pipes_are_not_copied(folder):
    os.mkfifo(folder / "src/pipe")
    assert "pipe" not in names(folder, "src")


@pytest.mark.parametrize(
    ("ignore", "left"),
    [
        ("*.txt\n", ["src", "src/deep", "src/deep/two.py", "src/one.py"]),
        ("# note\n\nsrc\n", ["a.txt", "b.txt"]),
        ("**/*.py\n*.txt\n", ["src", "src/deep"]),
        ("src/**\n!src/one.py\n*.txt\n", ["src", "src/one.py"]),
        ("/src/deep/\n?.txt\n", ["src", "src/one.py"]),
        ("*\n!a.txt\n", ["a.txt"]),
    ],
)
def test_dockerignore_leaves_out_what_its_last_matching_line_says(folder, ignore, left):
    assert [each for each in names(folder, ".", ignore=ignore) if each != ".dockerignore"] == left


def test_an_ignored_source_says_so(folder):
    with pytest.raises(TaskError, match="leaves it out"):
        names(folder, "a.txt", ignore="a.txt\n")


def test_a_dockerfile_s_own_ignore_file_wins(folder):
    (folder / "Dockerfile.dockerignore").write_text("b.txt\n")
    assert "a.txt" in names(folder, ".", ignore="a.txt\n")


def test_the_digest_is_of_names_modes_and_content_and_not_of_times(folder):
    def now() -> str:
        return digest(Context(folder, folder / "Dockerfile").select(".", ""))

    first = now()
    os.utime(folder / "a.txt", (1, 1))
    assert now() == first
    (folder / "a.txt").chmod(0o755)
    second = now()
    (folder / "src/one.py").write_text("changed")
    assert len({first, second, now()}) == 3


def test_the_fingerprint_notices_every_kind_of_change(folder):
    context = Context(folder, folder / "Dockerfile")
    seen = {context.fingerprint()}
    os.utime(folder / "a.txt", (1, 1))
    seen.add(context.fingerprint())
    (folder / "src/new").mkdir()
    seen.add(context.fingerprint())
    assert len(seen) == 3
    assert context.fingerprint() in seen


def test_staging_copies_where_links_are_impossible(folder, tmp_path, monkeypatch):
    def refused(*args: object, **kwargs: object) -> None:
        raise OSError("cross-device")

    monkeypatch.setattr(os, "link", refused)
    context = Context(folder, folder / "Dockerfile")
    stage(context.select("a.txt", ""), tmp_path / "staged")
    assert (tmp_path / "staged/a.txt").read_text() == "a"

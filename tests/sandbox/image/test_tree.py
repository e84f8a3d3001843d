"""Files of one root copied to another, both plain folders here; sandboxes are in `test_staged`."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.sandbox.image import tree


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    source, target = tmp_path / "source", tmp_path / "target"
    for folder in (source / "sub/deep", target):
        folder.mkdir(parents=True)
    (source / "file").write_text("F")
    (source / "file").chmod(0o640)
    (source / "sub/a.txt").write_text("A")
    (source / "sub/deep/b.txt").write_text("B")
    (source / "sub/link").symlink_to("a.txt")
    (source / "out").symlink_to("/etc")
    os.mkfifo(source / "sub/pipe")
    return source, target


def copied(roots: tuple[Path, Path], target: str, *sources: str, **more: object) -> list[str]:
    asked = {"from": str(roots[0]), "to": str(roots[1]), "sources": sources, "target": target, **more}
    return [str(each) for each in tree.work(asked)["names"]]


def test_a_file_gets_the_name_of_its_target_unless_that_is_a_folder(roots):
    assert copied(roots, "/new/name", "/file") == ["/new/name"]
    (roots[1] / "there").mkdir()
    assert copied(roots, "/there", "file") == ["/there/file"]
    assert copied(roots, "/other/", "file", "sub/a.txt") == ["/other/file", "/other/a.txt"]
    assert stat.S_IMODE((roots[1] / "other/file").stat().st_mode) == 0o640
    assert copied(roots, "/there/file", "sub/a.txt") == ["/there/file"]
    assert (roots[1] / "there/file").read_text() == "A"


def test_a_folder_stands_for_its_content_and_only_files_folders_and_links_are_copied(roots):
    assert copied(roots, "/x", "sub") == ["/x/a.txt", "/x/deep", "/x/deep/b.txt", "/x/link"]
    assert (roots[1] / "x/link").readlink() == Path("a.txt")
    copied(roots, "/x", "sub")
    assert copied(roots, "/y", "sub", parents=True)[0] == "/y/sub"
    assert copied(roots, "/z/", "sub/*.txt", "s?b/d[^x]ep") == ["/z/a.txt", "/z/b.txt"]


def test_a_link_leads_only_to_where_it_leads_in_its_root(roots):
    with pytest.raises(tree.TreeError, match="'/out/passwd' is not there"):
        copied(roots, "/x", "/out/passwd")
    (roots[0] / "etc").mkdir()
    (roots[0] / "etc/passwd").write_text("mine")
    copied(roots, "/x", "/out/passwd")
    assert (roots[1] / "x").read_text() == "mine"
    (roots[1] / "way").symlink_to("/elsewhere")
    (roots[1] / "elsewhere").mkdir()
    copied(roots, "/way/x", "/file")
    assert (roots[1] / "elsewhere/x").read_text() == "F"


@pytest.mark.parametrize("source", ["../x", "nothing", "no*thing", "file/x"])
def test_what_is_not_there_is_said(roots, source):
    with pytest.raises((tree.TreeError, OSError)):
        copied(roots, "/x", source)


def test_a_digest_changes_with_content_mode_and_names_and_not_with_times(roots):
    def digest() -> str:
        return str(tree.work({"from": str(roots[0]), "sources": ["/"], "exclude": [r"sub/deep.*"]})["digest"])

    first = digest()
    os.utime(roots[0] / "file", (1, 1))
    (roots[0] / "sub/deep/b.txt").write_text("left out")
    assert digest() == first
    (roots[0] / "file").chmod(0o600)
    assert digest() != first
    (roots[0] / "file").chmod(0o640)
    (roots[0] / "sub/link").unlink()
    (roots[0] / "sub/link").symlink_to("other")
    assert digest() != first


def test_empty_places_are_removed_with_the_folders_above_them(roots):
    for path in ("a/b/c", "kept/d", "full/e"):
        (roots[1] / path).mkdir(parents=True)
    (roots[1] / "full/f").write_text("")
    (roots[1] / "g").write_text("content")
    asked = {
        "from": str(roots[1]),
        "prune": ["/a/b/c", "/kept/d", "/full/e", "/g", "/none/x"],
        "keep": ["/kept"],
    }
    tree.work(asked)
    assert sorted(str(each.relative_to(roots[1])) for each in roots[1].rglob("*")) == [
        "full",
        "full/f",
        "g",
        "kept",
    ]


def test_it_is_a_program_too(roots):
    def run(**asked: object) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-I",
            "-S",
            "-B",
            tree.__file__,
            json.dumps({"from": str(roots[0]), **asked}),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert json.loads(run(sources=["/file"]).stdout)["single"] is True
    for source, said in (("nothing", "'nothing' is not there"), ("file/x", "file/x: Not a directory")):
        done = run(sources=[source])
        assert (done.returncode, done.stderr) == (1, said)

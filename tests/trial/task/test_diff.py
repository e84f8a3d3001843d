from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from proctor.trial.task.diff import MAX_FILE_BYTES, diff_state


def make_state(path: Path, files: dict[str, bytes | None], links: dict[str, str] | None = None) -> Path:
    """A state with files; None is a whiteout."""
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            place = Path(name)
            info = tarfile.TarInfo(str(place.with_name(f".wh.{place.name}")) if data is None else name)
            info.size = len(data or b"")
            archive.addfile(info, io.BytesIO(data or b""))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return path


def test_added_changed_and_deleted_files_make_a_patch_that_applies(tmp_path):
    before = {"app/a.txt": b"one\ntwo\n", "app/gone.txt": b"bye\n", "app/same.txt": b"same\n"}
    state = make_state(
        tmp_path / "s.tar",
        {
            "app/a.txt": b"one\n2\n",
            "./app/new/b.txt": b"new\n",
            "app/gone.txt": None,
            "app/same.txt": b"same\n",
        },
    )
    diff = diff_state(state, "/app", before.get)
    assert diff.counts == {"added": 1, "modified": 1, "deleted": 1, "left_out": 0}
    for name, data in before.items():
        place = tmp_path / "tree" / Path(name).relative_to("app")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    (tmp_path / "p.patch").write_text(diff.patch)
    subprocess.run(["git", "apply", str(tmp_path / "p.patch")], cwd=tmp_path / "tree", check=True)
    assert (tmp_path / "tree/a.txt").read_text() == "one\n2\n"
    assert (tmp_path / "tree/new/b.txt").read_text() == "new\n"
    assert not (tmp_path / "tree/gone.txt").exists()


def test_what_lies_elsewhere_is_not_part_of_the_workspace(tmp_path):
    state = make_state(tmp_path / "s.tar", {"etc/passwd": b"x", "application/x": b"y"})
    assert diff_state(state, "/app", lambda path: None).patch == ""


def test_binary_large_and_linked_files_do_not_enter_the_patch(tmp_path):
    files = {"app/bin": b"\0\1\2", "app/big": b"a" * (MAX_FILE_BYTES + 1)}
    diff = diff_state(
        make_state(tmp_path / "s.tar", files, {"app/link": "/etc/passwd"}), "/app", lambda path: None
    )
    assert (diff.patch, diff.counts["added"], diff.counts["left_out"]) == ("", 2, 2)


def test_a_file_without_a_last_newline_is_marked(tmp_path):
    diff = diff_state(make_state(tmp_path / "s.tar", {"app/a": b"x"}), "/app", lambda path: None)
    assert "\\ No newline at end of file" in diff.patch


def test_a_damaged_state_is_an_error_not_a_patch(tmp_path):
    (tmp_path / "s.tar").write_bytes(b"nonsense")
    with pytest.raises(tarfile.TarError):
        diff_state(tmp_path / "s.tar", "/app", lambda path: None)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("n\udcff", r'"b/n\377"'),
        ("a\nb", r'"b/a\012b"'),
        ('q"\\', r'"b/q\"\\"'),
        ("über", "b/über"),
        ("\x1b[31m", r'"b/\033[31m"'),
    ],
)
def test_names_are_written_as_git_writes_them_and_the_patch_applies(tmp_path, name, written):
    state = make_state(tmp_path / "s.tar", {f"app/{name}": b"text\n"})
    patch = diff_state(state, "/app", lambda _: None).patch
    assert f"+++ {written}\n" in patch
    (tmp_path / "work").mkdir()
    subprocess.run(["git", "apply", "-"], cwd=tmp_path / "work", input=patch.encode(), check=True)
    assert (tmp_path / "work" / name).read_bytes() == b"text\n"

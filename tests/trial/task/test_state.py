from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.trial.task.state import MAX_FILE_BYTES, diff_state, entries


def entry(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", **pax: str):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.pax_headers = kind, len(content), pax
    return info, content


def archive(path, members, form=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w", format=form) as file:
        for info, content in members:
            file.addfile(info, io.BytesIO(content))
    return path


def listed(path):
    return [
        (each.path, each.kind, each.size, each.read() if each.kind == "file" else b"")
        for each in entries(path)
    ]


ENTRIES = [
    entry("./app", tarfile.DIRTYPE, **{"SCHILY.xattr.user.overlay.opaque": "y"}),
    entry("./app/hello.txt", content=b"hello"),
    entry("./app/empty"),
    entry("./app/link", tarfile.SYMTYPE),
    entry("./app/removed", tarfile.CHRTYPE),
    entry("./app/pipe", tarfile.FIFOTYPE),
    entry("./app/block", content=b"x" * 512),
]


FOUND = [
    ("app", "folder", 0, b""),
    ("app/hello.txt", "file", 5, b"hello"),
    ("app/empty", "file", 0, b""),
    ("app/link", "link", 0, b""),
    ("app/removed", "gone", 0, b""),
    ("app/pipe", "pipe", 0, b""),
    ("app/block", "file", 512, b"x" * 512),
]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_every_format_is_read_with_what_was_removed(tmp_path, form):
    long = "d" * 60 + "/" + "e" * 60 + "/file"
    path = archive(tmp_path / "state.tar", [*ENTRIES, entry(long, content=b"deep"), entry("a/.wh.b")], form)
    assert listed(path) == [*FOUND, (long, "file", 4, b"deep"), ("a/b", "gone", 0, b"")]
    assert listed(path.read_bytes()) == listed(path)


def test_a_folder_that_hides_what_is_below_it_is_marked(tmp_path):
    assert [each.opaque for each in entries(archive(tmp_path / "state.tar", ENTRIES))] == [True] + [False] * 6


def test_a_size_beyond_the_end_is_an_error(tmp_path):
    path = archive(tmp_path / "state.tar", [entry("a", content=b"x" * 2000)])
    os.truncate(path, 1024)
    with pytest.raises(tarfile.TarError):
        listed(path)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=2048), st.integers(0, 4000))
def test_garbage_never_reads_outside_of_the_file(tmp_path_factory, noise, place):
    path = archive(tmp_path_factory.mktemp("tar") / "state.tar", ENTRIES)
    data = bytearray(path.read_bytes())
    data[place : place + len(noise)] = noise
    path.write_bytes(data)
    try:
        found = listed(path)
    except (tarfile.TarError, ValueError, OverflowError, EOFError):
        return
    assert sum(len(content) for *_, content in found) <= len(data)


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

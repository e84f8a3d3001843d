from __future__ import annotations

import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.tasks.archive import ArchiveLimits, pack, unpack
from proctor.tasks.digest import task_digest

TASK = {"task.toml": b'version = "1.0"\n', "instruction.md": b"Do it.\n", "tests/test.sh": b"#!/bin/sh\n"}


def make_zip(path: Path, files: dict[str, bytes], *, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as opened:
        for name, data in files.items():
            opened.writestr(zipfile.ZipInfo(name) if "\\" in name else name, data)
    return path


def refused(tmp_path: Path, archive: Path, limits: ArchiveLimits | None = None) -> str:
    target = tmp_path / "out" / "task"
    with pytest.raises(TaskError) as caught:
        unpack(archive, target, limits)
    assert not target.exists()
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
    return str(caught.value)


def test_a_task_at_the_top_is_unpacked(tmp_path):
    root = unpack(make_zip(tmp_path / "a.zip", TASK), tmp_path / "out")
    assert (root / "instruction.md").read_text() == "Do it.\n"


def test_a_task_one_folder_down_is_found(tmp_path):
    nested = {f"hello/{name}": data for name, data in TASK.items()} | {"__MACOSX/x": b""}
    root = unpack(make_zip(tmp_path / "a.zip", nested), tmp_path / "out")
    assert root.name == "hello"
    assert (root / "task.toml").is_file()


def test_what_pack_packed_is_the_same_task_after_it(tmp_path):
    source = unpack(make_zip(tmp_path / "a.zip", TASK | {"tests/run": b"#!/bin/sh\n"}), tmp_path / "one")
    for script in ("tests/run", "tests/test.sh"):
        (source / script).chmod(0o644)
    pack(source, tmp_path / "b.zip")
    again = unpack(tmp_path / "b.zip", tmp_path / "two")
    assert task_digest(again) == task_digest(source)


def test_scripts_get_their_execute_bit_back(tmp_path):
    root = unpack(make_zip(tmp_path / "a.zip", TASK | {"tests/run": b"#!/bin/sh\n"}), tmp_path / "out")
    assert root.joinpath("tests/test.sh").stat().st_mode & stat.S_IXUSR
    assert root.joinpath("tests/run").stat().st_mode & stat.S_IXUSR
    assert not root.joinpath("instruction.md").stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../evil", "points outside"),
        ("a/../../evil", "points outside"),
        ("/etc/passwd", "absolute"),
        ("C:/evil", "absolute"),
        ("a\\..\\evil", "backslash"),
        ("bad\x01name", "control character"),
        ("x" * 300, "too long"),
        ("d/" * 60 + "x", "too deep"),
    ],
)
def test_a_name_that_could_escape_is_refused(tmp_path, name, reason):
    assert reason in refused(tmp_path, make_zip(tmp_path / "a.zip", TASK | {name: b"x"}))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (stat.S_IFLNK, "is a link"),
        (stat.S_IFCHR, "device"),
        (stat.S_IFIFO, "device"),
        (stat.S_IFBLK, "device"),
    ],
)
def test_links_and_devices_are_refused(tmp_path, kind, reason):
    archive = make_zip(tmp_path / "a.zip", TASK)
    with zipfile.ZipFile(archive, "a") as opened:
        info = zipfile.ZipInfo("evil")
        info.external_attr = (kind | 0o777) << 16
        opened.writestr(info, "/etc/passwd")
    assert reason in refused(tmp_path, archive)


def test_a_name_that_stands_twice_is_refused(tmp_path):
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("task.toml", "")
        with pytest.warns(UserWarning, match="Duplicate"):
            opened.writestr("task.toml", "")
    assert "twice" in refused(tmp_path, archive)


def test_a_file_that_is_also_a_folder_is_refused(tmp_path):
    assert "both a file and a folder" in refused(
        tmp_path, make_zip(tmp_path / "a.zip", TASK | {"a": b"", "a/b": b""})
    )


def test_a_bomb_by_ratio_is_refused(tmp_path):
    archive = make_zip(tmp_path / "a.zip", TASK | {"zeros": bytes(20 << 20)})
    assert "bomb" in refused(tmp_path, archive)


def test_a_bomb_by_size_or_count_is_refused(tmp_path):
    archive = make_zip(tmp_path / "a.zip", TASK | {"big": bytes(5000)})
    assert "at most 4000" in refused(tmp_path, archive, ArchiveLimits(total_bytes=4000))
    assert "unpacks to 5000" in refused(tmp_path, archive, ArchiveLimits(entry_bytes=4000))
    assert "at most 3 are allowed" in refused(tmp_path, archive, ArchiveLimits(entries=3))


def test_an_entry_that_lies_about_its_size_is_refused(tmp_path):
    archive = make_zip(tmp_path / "a.zip", TASK | {"liar": bytes(100_000)})
    raw = archive.read_bytes()
    archive.write_bytes(raw.replace(struct.pack("<I", 100_000), struct.pack("<I", 10)))
    message = refused(tmp_path, archive)
    assert "larger than the archive says" in message or "damaged" in message


def test_an_encrypted_entry_is_refused(tmp_path):
    archive = make_zip(tmp_path / "a.zip", TASK)
    raw = bytearray(archive.read_bytes())
    at = raw.index(b"PK\x01\x02")
    raw[at + 8] |= 1
    archive.write_bytes(raw)
    assert "encrypted" in refused(tmp_path, archive)


def test_truncated_damaged_and_foreign_files_are_refused(tmp_path):
    archive = make_zip(tmp_path / "a.zip", TASK, compression=zipfile.ZIP_STORED)
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    assert "truncated" in refused(tmp_path, archive)
    archive.write_bytes(whole.replace(b"Do it.", b"Do 1t."))
    assert "damaged" in refused(tmp_path, archive)
    archive.write_bytes(b"hello")
    assert "not a ZIP" in refused(tmp_path, archive)
    assert "no such file" in refused(tmp_path, tmp_path / "missing.zip")


def test_an_archive_without_one_task_is_refused(tmp_path):
    assert "no task.toml" in refused(tmp_path, make_zip(tmp_path / "a.zip", {"readme": b""}))
    assert "no task.toml" in refused(tmp_path, make_zip(tmp_path / "b.zip", {"a/b/task.toml": b""}))
    assert "holds 2 tasks" in refused(
        tmp_path, make_zip(tmp_path / "c.zip", {"a/task.toml": b"", "b/task.toml": b""})
    )
    empty = tmp_path / "d.zip"
    empty.write_bytes(make_zip(tmp_path / "e.zip", {}).read_bytes())
    assert "empty" in refused(tmp_path, empty)


def test_an_existing_folder_is_never_unpacked_into(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(TaskError, match="already exists"):
        unpack(make_zip(tmp_path / "a.zip", TASK), tmp_path / "out")


def test_what_is_packed_comes_out_the_same(tmp_path):
    source = unpack(make_zip(tmp_path / "a.zip", TASK), tmp_path / "one")
    pack(source, tmp_path / "b.zip")
    again = unpack(tmp_path / "b.zip", tmp_path / "two")
    assert {p.relative_to(again): p.read_bytes() for p in again.rglob("*") if p.is_file()} == {
        p.relative_to(source): p.read_bytes() for p in source.rglob("*") if p.is_file()
    }
    (source / "link").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="plain files"):
        pack(source, tmp_path / "c.zip")


def test_folders_in_the_archive_are_kept(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        opened.writestr("task.toml", "")
        opened.writestr("empty/", "")
    (tmp_path / "a.zip").write_bytes(buffer.getvalue())
    assert (unpack(tmp_path / "a.zip", tmp_path / "out") / "empty").is_dir()


def test_an_entry_before_the_archive_itself_is_refused(tmp_path):
    archive = make_zip(tmp_path / "a.zip", TASK)
    data = bytearray(archive.read_bytes())
    (offset,) = struct.unpack_from("<L", data, len(data) - 6)
    struct.pack_into("<L", data, len(data) - 6, offset + 5)
    archive.write_bytes(data)
    assert "begin before the archive" in refused(tmp_path, archive)

"""Hostile archives, unpacked as root into a folder; for users the same code runs in a namespace."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from proctor.sandbox import unpack as unpacking
from proctor.sandbox.unpack import OPAQUE, UnpackError, unpack

pytestmark = pytest.mark.needs("root")


def member(name: str, kind: bytes = tarfile.REGTYPE, **values: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    for key, value in values.items():
        setattr(info, key, value)
    return info


def archive(*members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
        for each in members:
            info, data = each if isinstance(each, tuple) else (each, b"")
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    buffer.seek(0)
    return buffer


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    (tmp_path / "outside").write_text("untouched")
    return tmp_path / "target"


def unpacked(target: Path, stream: io.BytesIO, **ids: int) -> None:
    fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        unpack(stream, fd, **ids)
    finally:
        os.close(fd)


def test_owners_modes_and_times_are_kept_and_counted_from_the_first_id(target):
    unpacked(
        target,
        archive(
            member("./", tarfile.DIRTYPE, mode=0o711),
            member("d", tarfile.DIRTYPE, mode=0o1777, mtime=1000),
            (member("d/f", mode=0o4755, uid=3, gid=4, mtime=2000), b"text"),
            member("d/l", tarfile.SYMTYPE, linkname="/etc/passwd", uid=5),
            member("d/h", tarfile.LNKTYPE, linkname="d/f"),
            member("d/p", tarfile.FIFOTYPE, mode=0o622),
        ),
        first_uid=100_000,
        first_gid=200_000,
    )
    file = (target / "d/f").stat()
    assert (file.st_uid, file.st_gid, file.st_mode & 0o7777, file.st_mtime) == (
        100_003,
        200_004,
        0o4755,
        2000,
    )
    assert (target / "d").stat().st_mtime == 1000
    assert (target / "d").stat().st_mode & 0o7777 == 0o1777
    assert target.stat().st_mode & 0o777 == 0o711
    assert (target / "d/l").lstat().st_uid == 100_005
    assert (target / "d/h").stat().st_ino == file.st_ino
    assert (target / "d/p").is_fifo()


def test_both_ways_to_mark_a_removed_file_become_the_overlay_s_own(target):
    unpacked(
        target,
        archive(
            member("a/.wh.gone"),
            member("b/.wh..wh..opq"),
            member("c", tarfile.CHRTYPE, devmajor=0, devminor=0),
            member("e", tarfile.DIRTYPE, pax_headers={f"SCHILY.xattr.{OPAQUE}": "y"}),
        ),
    )
    for name in ("a/gone", "c"):
        status = (target / name).lstat()
        assert (status.st_mode & 0o170000, status.st_rdev) == (0o020000, 0)
    assert os.getxattr(target / "b", OPAQUE) == os.getxattr(target / "e", OPAQUE) == b"y"


@pytest.mark.parametrize(
    "members",
    [
        [(member("../outside"), b"x")],
        [(member("a/../../outside"), b"x")],
        [member("way", tarfile.SYMTYPE, linkname=".."), (member("way/outside"), b"x")],
        [member("way", tarfile.SYMTYPE, linkname="/"), member("way/tmp/.wh.x")],
        [(member("f"), b""), (member("f/below"), b"x")],
        [member("h", tarfile.LNKTYPE, linkname="../outside")],
        [member("way", tarfile.SYMTYPE, linkname=".."), member("h", tarfile.LNKTYPE, linkname="way/outside")],
        [member("h", tarfile.LNKTYPE, linkname="missing/x")],
        [(member("f", uid=70_000), b"")],
        [member(".wh...")],
        [(member("a\0b", pax_headers={"path": "a\0b"}), b"")],
    ],
)
def test_nothing_outside_is_ever_touched(target, members):
    with pytest.raises(UnpackError):
        unpacked(target, archive(*members))
    assert (target.parent / "outside").read_text() == "untouched"
    assert sorted(each.name for each in target.parent.iterdir()) == ["outside", "target"]


def test_a_hard_link_to_a_link_is_the_link_itself(target):
    unpacked(
        target,
        archive(
            member("way", tarfile.SYMTYPE, linkname="../outside"),
            member("h", tarfile.LNKTYPE, linkname="way"),
        ),
    )
    assert (target / "h").is_symlink()


def test_real_devices_are_left_out_and_absolute_names_are_below(target):
    unpacked(
        target,
        archive(
            member("disk", tarfile.BLKTYPE, devmajor=8),
            member("mem", tarfile.CHRTYPE, devmajor=1, devminor=1),
            (member("/etc/x"), b"x"),
        ),
    )
    assert [each.name for each in target.iterdir()] == ["etc"]


def test_a_later_member_replaces_an_earlier_one(target):
    unpacked(
        target,
        archive(
            (member("x"), b"first"),
            (member("x"), b"second"),
            member("y", tarfile.SYMTYPE, linkname="../outside"),
            (member("y"), b"file"),
            (member("z"), b"file"),
            member("z", tarfile.DIRTYPE),
            member("z", tarfile.DIRTYPE, mode=0o700),
        ),
    )
    assert (target / "x").read_text() == "second"
    assert (target / "y").read_text() == "file"
    assert (target / "z").is_dir()
    assert (target.parent / "outside").read_text() == "untouched"


def test_compressed_archives_and_zeros_are_understood(target):
    zeros = bytes(1 << 20)
    unpacked(target, io.BytesIO(gzip.compress(archive((member("big"), zeros + b"end")).getvalue())))
    assert (target / "big").read_bytes() == zeros + b"end"
    assert (target / "big").stat().st_blocks * 512 < 1 << 20


def test_a_cut_or_foreign_file_is_refused(target):
    whole = archive((member("f"), b"x" * 5000)).getvalue()
    for data in (whole[:3000], b"nothing of the kind", b""):
        with pytest.raises(UnpackError):
            unpacked(target, io.BytesIO(data))


def test_too_many_entries_are_refused(target, monkeypatch):
    monkeypatch.setattr(unpacking, "_MOST_ENTRIES", 2)
    with pytest.raises(UnpackError, match="more than 2"):
        unpacked(target, archive(*(member(str(number)) for number in range(3))))


def test_the_program_reads_standard_input_and_writes_below_descriptor_three(target):
    command = [sys.executable, "-I", "-S", unpacking.__file__]
    script = ["sh", "-c", f'exec "$@" 3< {target}', "sh", *command]
    done = subprocess.run(
        script, input=archive((member("f"), b"text")).getvalue(), check=False, capture_output=True
    )
    assert (done.returncode, (target / "f").read_bytes()) == (0, b"text")
    done = subprocess.run(script, input=b"junk", check=False, capture_output=True)
    assert done.returncode == 1
    assert b"tar" in done.stderr


@pytest.fixture
def small_disk(tmp_path):
    """A file system with room for 240 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=240k", "tmpfs", str(folder)], check=False)
    if done.returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_file_that_does_not_fit_on_the_disk_is_an_error_and_not_a_part_of_it(small_disk):
    content = os.urandom(250_000)  # of the last block a part has room
    fd = os.open(small_disk, os.O_RDONLY | os.O_DIRECTORY)
    with pytest.raises(UnpackError, match="No space left"):
        unpack(archive((member("large"), content)), fd)
    os.close(fd)


def test_a_disk_that_takes_a_little_at_a_time_gets_everything(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:1000]))
    content = os.urandom(300_000)
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    unpack(archive((member("large"), content)), fd)
    os.close(fd)
    assert (tmp_path / "large").read_bytes() == content

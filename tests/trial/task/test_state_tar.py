from __future__ import annotations

import io
import os
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.trial.task import state_tar
from proctor.trial.task.state_tar import members


def entry(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", **pax: str):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.pax_headers = kind, len(content), pax
    return info, content


def archive(path, entries, form=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w", format=form) as file:
        for info, content in entries:
            file.addfile(info, io.BytesIO(content))
    return path


def listed(path, read=members):
    return [
        (each.name, each.kind, each.size, each.read() if each.kind == "file" else b"") for each in read(path)
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


def test_plain_headers_are_read_without_the_standard_library(tmp_path, monkeypatch):
    path = archive(tmp_path / "state.tar", ENTRIES)
    monkeypatch.setattr(state_tar, "_any", lambda _: pytest.fail("not needed"))
    assert listed(path) == [
        ("./app", "folder", 0, b""),
        ("./app/hello.txt", "file", 5, b"hello"),
        ("./app/empty", "file", 0, b""),
        ("./app/link", "link", 0, b""),
        ("./app/removed", "device", 0, b""),
        ("./app/pipe", "pipe", 0, b""),
        ("./app/block", "file", 512, b"x" * 512),
    ]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_every_format_reads_as_the_standard_library_reads_it(tmp_path, form):
    long = "d" * 60 + "/" + "e" * 60 + "/file"
    entries = [*ENTRIES, entry(long, content=b"deep")]
    if form != tarfile.USTAR_FORMAT:
        entries += [entry("f" * 200, content=b"long"), entry("naïve \N{SNOWMAN}", content=b"snow")]
    path = archive(tmp_path / "state.tar", entries, form)
    assert listed(path) == listed(path, state_tar._any)


def test_a_size_beyond_the_end_is_left_to_the_complete_reader(tmp_path):
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

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from proctor.errors import SandboxError
from proctor.sandbox.container.compose import take_out


def packed(*members: tuple[str, bytes | None]) -> io.BytesIO:
    """A tar of files; None is a link."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    data.seek(0)
    return data


def test_files_are_taken_and_links_and_what_does_not_fit_are_dropped(tmp_path: Path):
    data = packed(("top/a", b"1"), ("top/b/c", b"22"), ("top/link", None), ("top/large", b"x" * 100))
    taken = take_out(data, tmp_path / "out", max_bytes=50)
    assert (taken.files, taken.bytes, taken.dropped) == (2, 3, ("top/link", "top/large"))
    assert (tmp_path / "out/b/c").read_bytes() == b"22"


@pytest.mark.parametrize("name", ["../x", "top/../../x", "/etc/x"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str):
    with pytest.raises(SandboxError, match="leads out"):
        take_out(packed((name, b"1")), tmp_path / "out", max_bytes=50)
    assert not (tmp_path / "x").exists()


def test_what_is_no_tar_is_refused(tmp_path: Path):
    with pytest.raises(SandboxError, match="could not be read"):
        take_out(io.BytesIO(b"no tar at all" * 100), tmp_path / "out", max_bytes=50)
    with pytest.raises(SandboxError, match="could not be read"):
        take_out(packed(("top/a", b"1"), ("top/a", b"2")), tmp_path / "again", max_bytes=50)

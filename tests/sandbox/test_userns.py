"""Which ids a sandbox may use, for root and for others."""

from __future__ import annotations

import os

import pytest

from proctor.errors import SandboxError
from proctor.sandbox import userns


def files(tmp_path, text):
    for name in ("subuid", "subgid"):
        (tmp_path / name).write_text(text)
    return {"subuid": tmp_path / "subuid", "subgid": tmp_path / "subgid"}


def test_an_account_with_a_range_gets_it_and_stays_itself_outside(tmp_path):
    ids = userns.find_ids(uid=4321, gid=99, **files(tmp_path, "other:1:65536\n4321:200000:65536\n"))
    assert ids.maps()[0] == [0, 200000, 65536, 65536, 4321, 1]
    assert ids.maps()[1] == [0, 200000, 65536, 65536, 99, 1]
    assert not ids.as_root


@pytest.mark.parametrize("text", ["", "4321:200000:1000\n", "4321:x:65536\n", "nonsense\n"])
def test_an_account_without_a_range_is_told_how_to_get_one(tmp_path, text):
    with pytest.raises(SandboxError, match="usermod --add-subuids"):
        userns.find_ids(uid=4321, gid=99, **files(tmp_path, text))


def test_missing_helpers_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(userns.shutil, "which", lambda name: None)
    with pytest.raises(SandboxError, match="uidmap"):
        userns.find_ids(uid=4321, gid=99, **files(tmp_path, "4321:200000:65536\n"))


def test_root_never_stays_root(tmp_path):
    ids = userns.find_ids(uid=0, gid=0, **files(tmp_path, ""))
    assert ids.as_root
    assert ids.keeper_uid == ids.first_uid + 65_536
    assert all(0 not in numbers[1::3] for numbers in ids.maps())
    given = userns.find_ids(uid=0, gid=0, **files(tmp_path, "root:300000:65537\n"))
    assert given.first_uid == 300000
    gone = {"subuid": tmp_path / "gone", "subgid": tmp_path / "gone"}
    assert userns.find_ids(uid=0, gid=0, **gone).first_uid == userns.ROOT_BASE


@pytest.mark.parametrize("as_root", [True, False])
def test_maps_that_the_kernel_refuses_are_an_error(as_root):
    ids = userns.Ids(first_uid=1, first_gid=1, keeper_uid=5, keeper_gid=5, as_root=as_root)
    if not as_root and not userns.shutil.which("newuidmap"):
        pytest.skip("no newuidmap")
    with pytest.raises(SandboxError, match="map"):
        userns.write_maps(os.getpid(), ids)

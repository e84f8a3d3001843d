"""What a root is stacked from."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from proctor.errors import SandboxError
from proctor.sandbox import overlay
from proctor.sandbox.base import Root

pytestmark = pytest.mark.anyio


async def keep(tree):
    pass


async def test_the_skeleton_holds_what_programs_need_and_nothing_private(tmp_path):
    layer = await overlay.host_skeleton(tmp_path, keep)
    names = {str(path.relative_to(layer)) for path in layer.rglob("*")}
    assert {"tmp", "root", "etc/passwd", "logs/verifier", "tests"} <= names
    assert not {"etc/shadow", "etc/machine-id", "etc/ssh", "etc/environment", "etc/hostname"} & names
    assert "root:x:0:0" in (layer / "etc/passwd").read_text()
    assert (layer / "tmp").stat().st_mode & 0o7777 == 0o1777
    if Path("/bin").is_symlink():
        assert (layer / "bin").readlink() == Path("usr/bin")


async def test_layers_are_made_once_and_nothing_half_made_stays(tmp_path):
    owned = []

    async def own(tree):
        owned.append(tree)

    first = await overlay.host_skeleton(tmp_path, own)
    assert await overlay.host_skeleton(tmp_path, own) == first
    top = await overlay.top_layer(tmp_path, own)
    assert await overlay.top_layer(tmp_path, own) == top
    assert (top / "etc/resolv.conf").read_text() == "nameserver 10.0.2.3\n"
    assert len(owned) == 2
    assert sorted(tmp_path.iterdir()) == sorted([first, top])


async def test_a_maker_that_lost_the_race_takes_the_winner_s(tmp_path):
    done = await overlay.top_layer(tmp_path, keep)
    kept = tmp_path.parent / f"{tmp_path.name}-kept"
    done.rename(kept)

    async def slow(tree):
        kept.rename(done)

    assert await overlay.top_layer(tmp_path, slow) == done

    async def fail(tree):
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await overlay.host_skeleton(tmp_path, fail)
    assert list(tmp_path.iterdir()) == [done]


async def test_the_topmost_layer_comes_first(tmp_path):
    for name in ("low", "high", "top", "host", "tool"):
        (tmp_path / name).mkdir()
    root = Root(layers=(tmp_path / "low", tmp_path / "high"), host=True, binds={"/t": tmp_path / "tool"})
    made = overlay.stack(root, top=tmp_path / "top", host_layer=tmp_path / "host", name="x")
    assert [layer.name for layer in made.layers] == ["top", "high", "low", "host"]
    assert (Path("/usr"), "/usr") in made.binds
    assert made.binds[-1] == (tmp_path / "tool", "/t")
    assert made.sources()[:4] == list(made.layers)


async def test_roots_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(SandboxError, match="no layers"):
        overlay.stack(Root(), top=tmp_path, host_layer=None, name="x")
    with pytest.raises(SandboxError, match="at most 200"):
        overlay.stack(Root(layers=(tmp_path,) * 300), top=tmp_path, host_layer=None, name="x")
    with pytest.raises(SandboxError, match="image cache"):
        overlay.stack(Root(layers=(tmp_path / "gone",)), top=tmp_path, host_layer=None, name="x")


@pytest.mark.needs("root")
async def test_root_opens_folders_as_detached_mounts(tmp_path):
    fds = overlay.open_trees([tmp_path])
    assert os.fstat(fds[0]).st_ino == tmp_path.stat().st_ino
    os.close(fds[0])
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(SandboxError, match="gone"):
        overlay.open_trees([tmp_path, tmp_path / "gone"])
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_file_of_the_host_s_layer_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "source").write_text("x")

    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        overlay._copy(str(tmp_path / "source"), str(tmp_path / "target"))

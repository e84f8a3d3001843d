"""Building the keeper, and launching it or not."""

from __future__ import annotations

import os
import shutil

import pytest

from proctor.errors import SandboxError
from proctor.sandbox.init import build
from proctor.sandbox.init.client import Keeper, Usage
from proctor.sandbox.userns import Ids, find_ids

compiler = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")


@compiler
def test_it_is_built_once_and_not_again(tmp_path, monkeypatch):
    program = build.keeper_program(tmp_path)
    assert os.access(program, os.X_OK)
    made = program.stat().st_mtime_ns
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    assert build.keeper_program(tmp_path) == program
    assert program.stat().st_mtime_ns == made
    assert [each.name for each in program.parent.iterdir()] == [program.name]


@compiler
def test_a_program_that_others_could_have_written_is_built_again(tmp_path):
    program = build.keeper_program(tmp_path)
    program.write_text("evil")
    program.chmod(0o777)
    assert build.keeper_program(tmp_path) == program
    assert program.read_bytes()[:4] == b"\x7fELF"


def test_without_a_compiler_or_with_a_broken_one_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    assert build.keeper_program(tmp_path) is None
    monkeypatch.setattr(build.shutil, "which", lambda name: "/bin/false")
    assert build.keeper_program(tmp_path) is None
    assert list((tmp_path / "keeper").iterdir()) == []


@compiler
def test_the_source_compiles_without_a_warning(tmp_path):
    import subprocess

    sources = sorted(map(str, build.SOURCES.glob("*.c")))
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2"]
    done = subprocess.run(
        ["cc", *flags, "-o", str(tmp_path / "k"), *sources], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.anyio
async def test_a_program_that_is_no_keeper_is_reported():
    ids = Ids(first_uid=1, first_gid=1, keeper_uid=1, keeper_gid=1, as_root=False)
    with pytest.raises(SandboxError, match="has died"):
        await Keeper.launch("/bin/true", ["true"], ids)
    with pytest.raises(SandboxError, match="cannot run the keeper /no/such"):
        await Keeper.launch("/no/such", ["x"], ids)


@compiler
@pytest.mark.anyio
@pytest.mark.needs("root")
async def test_the_keeper_refuses_to_be_root(tmp_path):
    program = build.keeper_program(tmp_path)
    ids = Ids(first_uid=1, first_gid=1, keeper_uid=0, keeper_gid=0, as_root=False)
    with pytest.raises(SandboxError, match=r"has died|cannot create sandboxes as root"):
        await Keeper.launch(str(program), ["proctor"], ids)


@compiler
@pytest.mark.anyio
@pytest.mark.needs("bubblewrap")
async def test_trusted_programs_run_as_root_of_the_outer_namespace(tmp_path):
    keeper = await Keeper.launch(str(build.keeper_program(tmp_path)), ["proctor"], find_ids())
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    assert await keeper.run(["sh", "-c", "id -u; env | wc -l; exit 5"], [null, writer, null]) == 5
    os.close(writer)
    assert os.read(reader, 100).split()[0] == b"0"
    os.close(reader)
    os.close(null)
    assert await keeper.run(["/no/such/program"]) == 127
    await keeper.close()
    await keeper.close()
    with pytest.raises(SandboxError, match="has died"):
        await keeper.run(["true"])


def test_usage_is_read_in_the_kernel_s_units():
    used = Usage.parse(["2500000", "10", "3", "4"])
    assert (used.cpu_s, used.peak_process_bytes, used.read_bytes, used.write_bytes) == (
        2.5,
        10240,
        1536,
        2048,
    )

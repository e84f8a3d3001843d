"""The keeper as it ships, built elsewhere, and launched or not."""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from proctor.errors import SandboxError
from proctor.sandbox import programs
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.init.keeper import Keeper, Usage
from proctor.sandbox.programs import is_static
from proctor.sandbox.userns import Ids, find_ids

compiler = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A processor that no program ships for, and the cache of an account."""
    monkeypatch.setattr(programs, "BUILT", tmp_path / "none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "proctor"


def test_what_ships_is_what_make_keeper_made_of_these_sources():
    listed = dict(
        reversed(line.split(maxsplit=1)) for line in (programs.BUILT / "SHA256SUMS").read_text().splitlines()
    )
    files = [*programs.SOURCES.glob("*.[ch]"), *programs.BUILT.glob("keeper-*")]
    found = {str(each.relative_to(programs.SOURCES)): sha256(each.read_bytes()).hexdigest() for each in files}
    assert found == listed, "run `make keeper` and commit src/proctor/sandbox/init/built"


def test_the_programs_that_ship_are_static_and_for_both_processors():
    machines = {}
    for program in programs.BUILT.glob("keeper-*"):
        assert is_static(program)
        assert os.access(program, os.X_OK)
        machines[program.name] = int.from_bytes(program.read_bytes()[18:20], "little")
    assert machines == {"keeper-x86_64": 62, "keeper-aarch64": 183}


def test_no_compiler_is_asked_for_where_a_program_ships(monkeypatch):
    monkeypatch.setattr(programs.shutil, "which", lambda name: None)
    assert programs.keeper_program() == programs.BUILT / f"keeper-{os.uname().machine}"
    assert programs.missing_program() == ""
    assert programs.origin() == "shipped"


@compiler
def test_elsewhere_it_is_built_once_in_the_cache_of_the_account(elsewhere):
    program = programs.keeper_program()
    assert program.parent == elsewhere
    assert os.access(program, os.X_OK)
    made = program.stat().st_mtime_ns
    assert programs.keeper_program() == program
    assert program.stat().st_mtime_ns == made
    assert list(elsewhere.iterdir()) == [program]
    assert "built with" in programs.origin()


@compiler
def test_a_program_that_others_could_have_written_is_built_again(elsewhere):
    program = programs.keeper_program()
    program.write_text("evil")
    program.chmod(0o777)
    assert programs.keeper_program() == program
    assert program.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.anyio
async def test_without_a_program_and_a_compiler_sandboxes_are_refused(elsewhere, tmp_path, monkeypatch):
    monkeypatch.setattr(programs.shutil, "which", lambda name: None)
    assert "install gcc" in programs.missing_program()
    backend = Bubblewrap(tmp_path / "home")
    with pytest.raises(SandboxError, match=f"{os.uname().machine}.*no C compiler is installed to build it"):
        await backend.keeper()
    await backend.close()


def test_a_compiler_that_fails_is_quoted(elsewhere, tmp_path, monkeypatch):
    (tmp_path / "cc").write_text("#!/bin/sh\necho 'fatal error: stdio.h is missing' >&2; exit 1\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SandboxError, match=r"cannot be built with .*/cc: fatal error: stdio.h is missing"):
        programs.keeper_program()
    assert list(elsewhere.iterdir()) == []


@compiler
def test_the_source_compiles_without_a_warning(tmp_path):
    import subprocess

    sources = sorted(map(str, programs.SOURCES.glob("*.c")))
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2"]
    done = subprocess.run(
        ["cc", *flags, "-o", str(tmp_path / "k"), *sources], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.anyio
async def test_a_program_that_is_no_keeper_is_reported():
    ids = Ids(first_uid=1, first_gid=1, keeper_uid=1, keeper_gid=1, as_root=False)
    with pytest.raises(SandboxError, match="has died"):
        await Keeper.launch("/bin/true", ids)
    with pytest.raises(SandboxError, match="cannot run the keeper /no/such"):
        await Keeper.launch("/no/such", ids)


@pytest.mark.anyio
@pytest.mark.needs("root")
async def test_the_keeper_refuses_to_be_root():
    ids = Ids(first_uid=1, first_gid=1, keeper_uid=0, keeper_gid=0, as_root=False)
    with pytest.raises(SandboxError, match=r"has died|cannot create sandboxes as root"):
        await Keeper.launch(str(programs.keeper_program()), ids)


@pytest.mark.anyio
@pytest.mark.needs("bubblewrap")
async def test_trusted_programs_run_as_root_of_the_outer_namespace():
    keeper = await Keeper.launch(str(programs.keeper_program()), find_ids())
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


def test_the_init_of_a_container_must_be_static(tmp_path, monkeypatch):
    assert not is_static(Path(os.path.realpath(shutil.which("ls") or "/bin/ls")))
    (tmp_path / "script").write_text("#!/bin/sh\n")
    assert not is_static(tmp_path / "script")
    monkeypatch.setattr(programs, "keeper_program", lambda: tmp_path / "script")
    with pytest.raises(SandboxError, match="statically"):
        programs.init_program()

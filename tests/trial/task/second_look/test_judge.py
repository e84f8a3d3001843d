"""Which changes a second verdict does without, on saved states and images made by hand."""

from __future__ import annotations

import io
import struct
import tarfile

import pytest

from proctor.sandbox.lower import Lower
from proctor.trial.collect import laid_above
from proctor.trial.task.second_look.changes import write_clean
from proctor.trial.task.second_look.context import TaskText
from proctor.trial.task.second_look.judge import Surroundings, find
from proctor.trial.task.second_look.packages import versions, without
from proctor.trial.task.second_look.startup import libraries_in
from proctor.trial.task.workspace import Workspace

GONE = object()
OPAQUE = object()
LIB = "usr/lib/x86_64-linux-gnu"
LOCAL = "usr/local/lib/python3.11/dist-packages"
DEBIAN = "Package: {}\nStatus: install ok installed\nVersion: {}\n"


@pytest.fixture
def layer(tmp_path):
    """An image with what the rules look for."""
    files = {
        "usr/bin/python3": "python",
        "usr/bin/yq": "yq 1",
        "usr/bin/mawk": "mawk",
        "usr/sbin/ldconfig": "ldconfig",
        f"{LIB}/libtinfo.so.6": "tinfo",
        f"{LIB}/gconv/UTF-16.so": "gconv",
        "usr/share/perl/5.36.0/Test/More.pm": "perl",
        "usr/lib/python3.11/json/__init__.py": "json",
        "usr/lib/python3/dist-packages/requests/__init__.py": "requests",
        "usr/lib/python3/dist-packages/pytest/__init__.py": "pytest",
        "etc/passwd": "root:x:0:0::/root:/bin/sh\n",
        "etc/hosts": "127.0.0.1 localhost\n",
        "etc/ssl/certs/ca-certificates.crt": "certificates",
        "var/lib/dpkg/status": f"{DEBIAN.format('yq', 1)}\n{DEBIAN.format('libc-bin', 1)}",
        "var/lib/dpkg/info/yq.list": "/usr\n/usr/bin\n/usr/bin/yq\n",
        "var/lib/dpkg/info/libc-bin.postinst": "ldconfig",
        "app/given.py": "given",
    }
    root = tmp_path / "layer"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "bin").symlink_to("usr/bin")
    (root / "etc/alternatives").mkdir()
    (root / "etc/alternatives/awk").symlink_to("/usr/bin/mawk")
    return root


def state_of(files: dict) -> bytes:
    """A saved state, as the tar of an overlay's upper folder."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            if content is GONE:
                entry.type = tarfile.CHRTYPE
            elif content is OPAQUE:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                entry.pax_headers = {"SCHILY.xattr.user.overlay.opaque": "y"}
            elif isinstance(content, tuple):
                kind, entry.linkname = content
                entry.type = kind
            else:
                entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return stream.getvalue()


def look(layer, files, *, tests="bash test.sh", instruction="Do it.", workdir="/app", **more):
    around = Surroundings(
        workdir=workdir,
        env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/bin", "HOME": "/root"},
        image=Lower([layer]),
        text=lambda: TaskText(instruction, tests),
        **{"given": lambda path: None, "online": False, **more},
    )
    return find(state_of(files), around)


def touched(layer, files, **options) -> list[str]:
    return [each.entry.path for each in look(layer, files, **options).touching]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("usr/bin/python3", b"other"),
        ("usr/bin/python3", GONE),
        ("usr/local/bin/python3", b"added"),
        ("usr/local/bin/yq", (tarfile.SYMTYPE, "/opt/yq")),
        (f"{LIB}/glibc-hwcaps/x86-64-v3/libtinfo.so.6", b"added"),
        ("usr/local/lib/libtinfo.so.6", b"added"),
        (f"{LIB}/gconv/gconv-modules.d/a.conf", b"added"),
        ("etc/perl/Test/More.pm", b"added"),
        ("usr/local/share/perl/5.36.0/Test/More.pm", b"added"),
        ("etc/perl/sitecustomize.pl", b"added"),
        ("usr/lib/python3.11/json.cpython-311-x86_64-linux-gnu.so", b"added"),
        ("usr/lib/python311.zip", b"added"),
        (f"{LOCAL}/requests/__init__.py", b"added"),
        (f"{LOCAL}/pytest/__init__.py", b"added"),
        ("root/.local/lib/python3.11/site-packages/a.pth", b"import os"),
        ("var/lib/dpkg/info/libc-bin.postinst", b"changed"),
        ("etc/alternatives/awk", (tarfile.SYMTYPE, "/opt/awk")),
        ("etc/ssl/certs/ca-certificates.crt", b"others"),
        ("etc/apt/apt.conf.d/99hook", b"added"),
        ("etc/pip.conf", b"added"),
        ("etc/gitconfig", b"added"),
        ("etc/resolv.conf", b"added"),
        ("root/.curlrc", b"added"),
        ("root/.npmrc", b"added"),
        ("root/.config/uv/uv.toml", b"added"),
        ("root/.local/bin/env", b"added"),
        ("home/user/.profile", b"added"),
        ("etc/passwd", b"root:x:0:0::/opt/home:/bin/sh\n"),
        ("conftest.py", b"added"),
        ("node_modules/mocha/index.js", b"added"),
        ("app/conftest.py", b"added"),
        ("bin", (tarfile.DIRTYPE, "")),
        ("usr/bin", OPAQUE),
    ],
)
def test_what_shadows_or_hooks_is_touched(layer, path, content):
    assert touched(layer, {path: content}) == [path]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("usr/bin/python3", b"python"),
        ("usr/bin/new-tool", b"added"),
        ("usr/local/bin/new-tool", b"added"),
        ("usr/local/lib/libnew.so.1", b"added"),
        ("usr/share/doc/a", b"added"),
        ("etc/nginx/nginx.conf", b"added"),
        ("etc/passwd", b"root:x:0:0::/root:/bin/sh\nalice:x:1:1::/home/alice:/bin/sh\n"),
        (f"{LOCAL}/newer/__init__.py", b"added"),
        (f"{LOCAL}/a.pth", b"/app/src\n"),
        ("app/conftest.pyc", b"x"),
        ("app/.venv/lib/python3.11/site-packages/_virtualenv.pth", b"import _virtualenv"),
        ("app/random.py", b"own"),
        ("root/notes.txt", b"own"),
        ("usr/local/bin/curl", b"added"),
        ("usr/lib/python3.11/json/__pycache__/__init__.cpython-311.pyc", b"x"),
        ("var/lib/app/data", b"own"),
    ],
)
def test_what_cannot_help_a_verdict_is_not_touched(layer, path, content):
    assert touched(layer, {path: content}) == []


def test_compiled_modules_of_the_image_are_emptied_and_others_are_not(layer):
    found = look(
        layer,
        {
            "usr/lib/python3.11/json/__pycache__/__init__.cpython-311.pyc": b"x",
            f"{LOCAL}/newer/__pycache__/a.pyc": b"x",
            "app/__pycache__/a.pyc": b"x",
        },
    )
    assert found.fresh == ["/usr/lib/python3.11/json/__pycache__"]


def test_a_package_upgrade_explains_its_files_and_no_other(layer):
    status = f"{DEBIAN.format('yq', 2)}\n{DEBIAN.format('libc-bin', 1)}".encode()
    files = {"usr/bin/yq": b"yq 2", "var/lib/dpkg/status": status}
    files["var/lib/dpkg/info/yq.list"] = b"/usr/bin/yq\n/bin/yq-more\n"
    assert touched(layer, files) == []
    assert touched(layer, {**files, "usr/sbin/ldconfig": b"other"}) == ["usr/sbin/ldconfig"]
    assert touched(layer, {"usr/bin/yq": b"yq 2"}) == ["usr/bin/yq"]


def test_an_upgrade_by_pip_explains_its_modules(layer):
    site = "usr/lib/python3/dist-packages"
    files = {
        f"{site}/requests/__init__.py": b"2",
        f"{site}/requests-2.dist-info/RECORD": b"requests/__init__.py,,\n",
    }
    assert touched(layer, files) == []
    assert touched(layer, {f"{site}/requests/__init__.py": b"2"}) == [f"{site}/requests/__init__.py"]


def test_what_the_instruction_names_is_the_task_itself_unless_it_is_a_tool_of_every_test(layer):
    named = {"instruction": "Repair /usr/bin/yq and /usr/bin/python3, then edit ~/.bashrc."}
    assert touched(layer, {"usr/bin/yq": b"2"}, **named) == []
    assert touched(layer, {"root/.bashrc": b"2"}, **named) == []
    assert touched(layer, {"usr/bin/python3": b"2"}, **named) == ["usr/bin/python3"]


def test_tools_and_caches_count_where_the_tests_install_by_themselves(layer):
    uvx = "curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh\nuvx -w pytest==8.4.1 pytest /tests\n"
    files = {"root/.local/bin/uv": b"x", "root/.cache/uv/a": b"x"}
    assert touched(layer, files, tests=uvx, online=True) == list(files)
    assert touched(layer, files, tests=uvx) == ["root/.cache/uv/a"]
    assert touched(layer, files, online=True) == []


def test_a_tool_that_the_tests_install_is_no_longer_noted_as_installed(layer):
    before = f"{DEBIAN.format('yq', 1)}\n{DEBIAN.format('libc-bin', 1)}"
    files = {
        "usr/bin/curl": b"x",
        "var/lib/dpkg/status": f"{before}\n{DEBIAN.format('curl', 1)}".encode(),
        "var/lib/dpkg/info/curl.list": b"/usr/bin/curl\n",
    }
    found = look(layer, files, tests="apt-get install -y \\\n  curl", online=True)
    assert [each.entry.path for each in found.touching] == ["usr/bin/curl"]
    (status,) = [each for each in found.undone if each.harmless]
    assert set(versions(status.content)) == {"yq", "libc-bin"}
    assert without(b"Package: a\n\nPackage: b\n", ["a"]) == b"Package: b\n"


def test_modules_of_the_working_folder_count_where_python_starts_there(layer):
    files = {
        "app/json.py": b"x",
        "app/random/__init__.py": b"x",
        "app/random/more.py": b"x",
        "app/email/a.py": b"x",
    }
    assert touched(layer, files, tests="python3 -m pytest") == list(files)[:3]
    assert touched(layer, files, tests="python3 -m pytest", instruction="Write json.py and random.") == []
    assert touched(layer, files, tests="python3 /tests/check.py") == []


def test_a_file_that_the_engine_gave_counts_though_no_state_has_it(layer):
    assert touched(layer, {}, replaced=("etc/hosts",)) == ["etc/hosts"]


def test_a_state_without_changes_of_the_system_says_nothing(layer):
    found = look(layer, {"app/answer": b"42", "tmp/x": b"", "root/x": b""})
    assert (found.summary, found.undone) == ({}, [])


def test_changes_are_told_by_kind_and_odd_names_are_text(layer):
    found = look(layer, {"usr/bin/yq": b"2", "opt/a\udcff": b"", "usr/sbin/ldconfig": GONE})
    assert found.summary == {
        "count": 3,
        "first": ["changed /usr/bin/yq", "added /opt/a�", "removed /usr/sbin/ldconfig"],
    }


def cache(entries: dict[str, str]) -> bytes:
    """An ld.so.cache of these libraries."""
    texts, places = b"", []
    start = 48 + 24 * len(entries)
    for name, place in entries.items():
        places.append((start + len(texts), start + len(texts) + len(name) + 1))
        texts += f"{name}\0{place}\0".encode()
    rows = b"".join(struct.pack("<iIIIQ", 0x303, key, value, 0, 0) for key, value in places)
    return b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(texts)) + bytes(20) + rows + texts


def test_the_loader_s_list_may_grow_and_may_not_move(layer):
    known = {"libtinfo.so.6": f"/{LIB}/libtinfo.so.6"}
    (layer / "etc/ld.so.cache").write_bytes(cache(known))
    assert libraries_in(cache(known)) == known
    grown = {**known, "libnew.so.1": "/opt/new/libnew.so.1"}
    moved = {"libtinfo.so.6": "/opt/libtinfo.so.6"}
    assert touched(layer, {"etc/ld.so.cache": cache(grown)}) == []
    assert touched(layer, {"etc/ld.so.cache": cache(moved)}) == ["etc/ld.so.cache"]
    assert touched(layer, {"etc/ld.so.cache": b"glibc-ld.so.cache1.1\xff\xff\xff\xff"}) == ["etc/ld.so.cache"]


def test_a_clean_state_has_what_stays_and_the_second_name_of_what_does_not(layer, tmp_path):
    files = {
        "app/answer": b"42",
        "etc/ld.so.preload": b"/opt/x.so",
        "etc/passwd": b"alice:x:1:1::/:/bin/sh\n",
        "srv/same": (tarfile.LNKTYPE, "./etc/ld.so.preload"),
        "usr/bin": OPAQUE,
        "usr/bin/python3": b"x",
        "usr/bin/yq": GONE,
        "srv/folder": OPAQUE,
    }
    state, clean = tmp_path / "state.tar", tmp_path / "clean.tar"
    state.write_bytes(state_of(files))
    write_clean(state, clean, look(layer, files).undone)
    with tarfile.open(clean) as archive:
        found = {each.name.removeprefix("./"): each for each in archive}
        assert list(found) == ["app/answer", "etc/passwd", "srv/same", "usr/bin", "srv/folder"]
        assert archive.extractfile(found["srv/same"]).read() == b"/opt/x.so"
        accounts = archive.extractfile(found["etc/passwd"]).read()
        assert accounts == b"root:x:0:0::/root:/bin/sh\nalice:x:1:1::/:/bin/sh\n"
        assert not found["usr/bin"].pax_headers
        assert found["srv/folder"].pax_headers == {"SCHILY.xattr.user.overlay.opaque": "y"}


def test_what_the_engine_made_to_mount_something_there_is_no_change(layer):
    found = look(layer, {"etc/hosts": b"", "etc/mtab": b""}, covered=frozenset({"etc/hosts", "etc/mtab"}))
    assert (found.summary, found.undone) == ({}, ())


def test_an_overlay_that_the_run_laid_is_no_change_of_the_agent_s(layer, tmp_path):
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit/tool.py").write_bytes(b"ours")
    space = Workspace(above=(("srv/kit", tmp_path / "kit"), ("srv/note.txt", b"a note")))
    laid = {"srv/kit/tool.py": b"ours", "srv/note.txt": b"a note"}
    given = laid_above(space, "/app")
    assert look(layer, laid, given=given).summary == {}
    changed = look(layer, {**laid, "srv/note.txt": b"A note"}, given=given).summary
    assert changed == {"count": 1, "first": ["added /srv/note.txt"]}

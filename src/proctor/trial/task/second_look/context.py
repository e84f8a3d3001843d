"""What the rules about changed system files look at: the image, the packages, where programs are found."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from proctor.sandbox.lower import Lower
from proctor.trial.task.second_look.changes import below
from proctor.trial.task.second_look.packages import Packages

_CODE = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_NO_CODE = re.compile(
    r"usr/(local/)?(share/(doc|man|info|locale|zoneinfo|fonts|icons|mime|applications|bug|lintian)|src|include)/"
    r"|usr/lib/(locale|debug)/"
)
_SITE_FOLDERS = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class RuleContext:
    """Everything that a rule may ask."""

    image: Lower
    text: TaskText
    workdir: str
    """Relative to the root."""
    path: Sequence[str]
    """The folders of PATH, relative to the root and without links."""
    homes: Sequence[str]
    packages: Packages
    contents: Mapping[str, bytes]
    """What the state has in files that rules read."""
    given: Callable[[str], bytes | None]
    """What the task itself put at a path."""
    online: bool = False
    """Whether the tests can install something."""
    same: frozenset[str] = field(default_factory=frozenset)
    """Paths whose content is the image's."""

    @cached_property
    def code(self) -> tuple[str, ...]:
        """Folders from which programs and what they load come."""
        own = [folder for folder in self.path if not any(below(folder, each) for each in _CODE)]
        beside = [f"{posixpath.dirname(folder)}/lib" for folder in own if folder.endswith("/bin")]
        return (*_CODE, *own, *beside)

    def brings(self, name: str) -> bool:
        """Whether the tests can and do install this themselves."""
        return self.online and self.text.installs(name)

    def is_code(self, path: str) -> bool:
        """Whether programs or what they load are there."""
        return any(below(path, each) for each in self.code) and not _NO_CODE.match(path)

    def home_of(self, path: str) -> str:
        """A path relative to the home folder that it is in; empty when it is in none."""
        for home in self.homes:
            if path.startswith(f"{home}/"):
                return path[len(home) + 1 :]
        return ""

    @cached_property
    def libraries(self) -> frozenset[str]:
        """File names of the image's shared libraries, where the loader looks."""
        folders = [folder for folder in self.loader_folders if self.image.kind(folder) == "folder"]
        return frozenset(name for each in folders for name in self.image.names(each) if ".so" in name)

    @cached_property
    def loader_folders(self) -> tuple[str, ...]:
        """Where the loader looks for libraries."""
        machine = [f"{each}-linux-{abi}" for each in ("x86_64", "aarch64") for abi in ("gnu", "musl")]
        bases = ("usr/lib", "usr/local/lib", "lib", "usr/lib64", "lib64")
        return tuple(
            dict.fromkeys(
                self.image.real(each)
                for base in bases
                for each in (base, *(f"{base}/{name}" for name in machine))
            )
        )

    @cached_property
    def modules(self) -> frozenset[str]:
        """First names of the Python modules of the image that are installed beside the standard library."""
        found: set[str] = set()
        for base in ("usr/lib", "usr/local/lib", *(f"{posixpath.dirname(each)}/lib" for each in self.path)):
            for name in self.image.names(base) if self.image.kind(base) == "folder" else ():
                if name.startswith("python"):
                    for folder in _SITE_FOLDERS:
                        found |= {
                            each.partition(".")[0] for each in self.image.names(f"{base}/{name}/{folder}")
                        }
        return frozenset(found)


_TOOLS_NAMES = """
[ apt apt-get ash awk base64 basename bash busybox cat chmod chown cksum cmp comm cp curl cut dash
date dd diff dirname dpkg echo egrep env expr false fgrep find gawk git grep gunzip gzip head
hexdump id kill ldconfig ln ls mawk md5sum mkdir mktemp mv od perl pgrep pkill printf ps py.test
pytest python python2 python3 readlink realpath rm sed seq sh sha1sum sha256sum sleep sort stat su
sudo tail tar tee test timeout touch tr true uniq wc wget which whoami xargs xxd zsh
"""
TOOLS = frozenset(_TOOLS_NAMES.split())
"""A package never excuses a change of these: they are what the tests are made of."""
INSTALLED = TOOLS | {"jq", "node", "npm", "npx", "pip", "pip3", "unzip", "uv", "uvx"}
"""What tests often install themselves; then what the agent put there is of no use to it."""
MODULES = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "py", "pytest_json_ctrf", "ctrf"})
"""Python modules that judge."""
_MAX_TEST_BYTES = 1 << 20
_MOST_TESTS = 200
_INSTALLS = re.compile(r"\b(install|uvx|npx|add|--with|-w|tool run)\b")


@dataclass(frozen=True, slots=True)
class TaskText:
    """What a task's author wrote: the instruction and the tests."""

    instruction: str
    tests: str

    def runs(self, *names: str) -> bool:
        """Whether one of these words is in the tests."""
        return any(_word(name).search(self.tests) for name in names)

    def installs(self, name: str) -> bool:
        """Whether the tests install this themselves."""
        return any(
            _INSTALLS.search(line) and _word(name).search(line)
            for line in self.tests.replace("\\\n", " ").splitlines()
        )

    def names(self, path: str, homes: Iterable[str] = ()) -> bool:
        """Whether the instruction names a path, or a folder that it is in."""
        spelt = [f"/{path}", *(f"~/{path[len(home) + 1 :]}" for home in homes if path.startswith(f"{home}/"))]
        for each in spelt:
            parts = each.split("/")
            for count in range(len(parts), 1 if parts[0] else 2, -1):
                place = "/".join(parts[:count])
                if place.strip("/") not in _EVERYWHERE and _path(place).search(self.instruction):
                    return True
        return False


_EVERYWHERE_NAMES = """
bin sbin lib lib64 etc usr opt root home usr/bin usr/sbin usr/lib usr/lib64 usr/local usr/local/bin
usr/local/sbin usr/local/lib usr/share etc/profile.d etc/apt etc/ssl etc/ssl/certs ~/.local
~/.local/bin ~/.config ~/.cache
"""
_EVERYWHERE = frozenset(_EVERYWHERE_NAMES.split())
"""Folders of which the mention says nothing about each file."""


@lru_cache(maxsize=256)
def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")


@lru_cache(maxsize=256)
def _path(place: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.~/-]){re.escape(place)}(?![\w-])")


@lru_cache(maxsize=64)
def test_text(folders: tuple[Path, ...]) -> str:
    """The text of all small files of a task's tests, one after the other."""
    texts = []
    for folder in folders:
        files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_symlink()]
        small = [file for file in files[:_MOST_TESTS] if file.stat().st_size <= _MAX_TEST_BYTES]
        texts += [file.read_text(errors="replace") for file in small]
    return "\n".join(texts)

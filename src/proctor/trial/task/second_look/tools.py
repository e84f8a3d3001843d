"""What nearly every verifier runs on, by name, and what the text of a task's tests says about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

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
PACKAGES = re.compile(
    r"(bash|dash|coreutils|busybox|bsdutils|debianutils|util-linux|grep|sed|diffutils|findutils|[mg]awk|"
    r"libc6|libc-bin|libtinfo6|libselinux1|libpcre2-8-0|libacl1|libattr1|libgcc-s1|zlib1g|libexpat1|perl-base|"
    r"(lib)?python3(\.\d+)?(-minimal|-stdlib)?|python3-(pytest|pluggy|iniconfig)|curl|wget|git)"
)
"""Packages of the same."""
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

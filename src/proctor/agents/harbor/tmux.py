"""A tmux for sandboxes that have none: this machine's, with its loader, its libraries and terminal types.

It brings its own C library, so it runs in an image of any distribution; no variable of it reaches what runs
in its windows, but for where terminal types are found.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from proctor.agents.installed.folders import install, place_of
from proctor.agents.installed.recipes import Say
from proctor.errors import ProctorError, UsageError
from proctor.processes import host_environment

INSIDE = "/opt/proctor/agents/tmux"
"""Where it is in a sandbox."""
BIN = f"{INSIDE}/bin"
_TYPES = ("screen", "screen-256color", "tmux", "tmux-256color", "xterm", "xterm-256color", "linux", "dumb")
_TERMINFO = ("/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo")
_LINKED = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
_START = f"""\
#!/bin/sh
TERMINFO_DIRS="{INSIDE}/terminfo:${{TERMINFO_DIRS:-/etc/terminfo:/lib/terminfo:/usr/share/terminfo}}"
export TERMINFO_DIRS
exec {INSIDE}/lib/loader --library-path {INSIDE}/lib {INSIDE}/lib/tmux "$@"
"""


@dataclass(frozen=True, slots=True)
class Tmux:
    """Copies this machine's tmux into a folder."""

    program: str

    def build(self, folder: Path, version: str, say: Say) -> None:
        """The program, what it is linked to, and the terminal types that people use."""
        say(f"tmux {version} of this machine is copied for sandboxes that have none")
        (folder / "bin").mkdir()
        libraries = folder / "lib"
        libraries.mkdir()
        shutil.copy2(Path(self.program).resolve(), libraries / "tmux")
        linked = _output(["ldd", self.program])
        for each in map(Path, _LINKED.findall(linked)):
            name = "loader" if each.name.startswith("ld-") else each.name
            shutil.copy2(each.resolve(), libraries / name)
        if not (libraries / "loader").exists():
            raise UsageError(f"{self.program} is no program of this machine's C library; it is not copied")
        for name in _TYPES:
            found = [Path(place) / name[0] / name for place in _TERMINFO]
            for source in [each for each in found if each.exists()][:1]:
                target = folder / "terminfo" / name[0] / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source.resolve(), target)
        start = folder / "bin/tmux"
        start.write_text(_START)
        start.chmod(0o755)

    def argv(self, folder: str) -> list[str]:
        """A script that starts it with its own loader."""
        return [f"{folder}/bin/tmux"]

    def probe(self, folder: str) -> list[str]:
        """Its version."""
        return [f"{folder}/bin/tmux", "-V"]


def binds(cache: Path) -> dict[str, Path]:
    """What sandboxes show to have a tmux; nothing where this machine has none that can be copied."""
    version = _version()
    if not version:
        return {}
    try:
        install(cache, "tmux", version, Tmux(shutil.which("tmux") or ""), lambda _: None)
    except (ProctorError, OSError):
        return {}
    return {INSIDE: place_of(cache, "tmux", version).absolute()}


def _output(argv: list[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=host_environment()).stdout


@functools.cache
def _version() -> str:
    """The version of this machine's tmux; empty when it has none."""
    program = shutil.which("tmux")
    if not program:
        return ""
    said = _output([program, "-V"]).split()
    return said[1] if len(said) == 2 and said[1][0].isdigit() else ""


def too_old(said: str) -> bool:
    """Whether what `tmux -V` says is a version before 3.2; a development version is not."""
    found = re.search(r"(\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) < (3, 2)

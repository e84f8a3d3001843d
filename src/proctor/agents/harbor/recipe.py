"""How Harbor is installed: its packages, pinned with hashes, for a Python 3.12 or later of this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from proctor.agents.installed.recipes import Say, find_python, pip_install
from proctor.errors import FetchError, UsageError
from proctor.sandbox.harbor.place import ABOUT, PACKAGES, PYTHON, VERSION, command, plain_environment

PYTHONS = ((3, 12), (3, 14))
CHOSEN = "HARBOR_PYTHON"
"""A variable that names the Python to use."""
_LOCK = Path(__file__).with_name("harbor.lock")
_LIST_TIMEOUT_S = 300.0
_EXTRA = re.compile(r"[a-z0-9-]+")
_NO_PYTHON = (
    "Harbor needs a Python from 3.12 to 3.14, and none was found: on the search path, among those of pyenv "
    "and uv, or in HARBOR_PYTHON; install one ('uv python install 3.12', 'pyenv install 3.12')"
)


@dataclass(frozen=True, slots=True)
class HarborPackages:
    """Packages for a Python that stays where it is; a version may name extras: `0.24.0+modal`."""

    def build(self, folder: Path, version: str, say: Say) -> None:
        """Install, and ask it what it has, which also shows that it works."""
        python = find_python(*PYTHONS, also=[os.environ.get(CHOSEN, "")])
        if python is None:
            raise UsageError(_NO_PYTHON)
        plain, *extras = version.split("+")
        if wrong := [each for each in extras if not _EXTRA.fullmatch(each)]:
            raise UsageError(f"'{wrong[0]}' is not an extra of Harbor; write 0.24.0+modal")
        say(f"Harbor {version} is installed for Python {python.version}")
        target = folder / PACKAGES
        if plain == VERSION and not extras:
            pip_install(target, f"--requirement={_LOCK}", options=["--require-hashes"], python=python.program)
        else:
            named = f"harbor[{','.join(extras)}]" if extras else "harbor"
            pip_install(target, f"{named}=={plain}", python=python.program)
        program = folder / PYTHON
        program.parent.mkdir(exist_ok=True)
        program.symlink_to(python.program)
        (folder / ABOUT).write_text(json.dumps(_listed(folder)))

    def argv(self, folder: str) -> list[str]:
        """Its Python, with the script that Proctor brings."""
        return command(Path(folder))

    def probe(self, folder: str) -> list[str]:
        """It never runs inside a sandbox; here is what shows that it works."""
        return command(Path(folder), "list")


def _listed(folder: Path) -> dict[str, list[str]]:
    """Its agents and environments."""
    done = subprocess.run(
        command(folder, "list"),
        env=plain_environment(folder),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=_LIST_TIMEOUT_S,
    )
    if done.returncode:
        raise FetchError(f"Harbor was installed and does not start: {done.stderr.strip()[-1500:]}")
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found

"""What the rules about changed system files look at: the image, the packages, where programs are found."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from proctor.sandbox.lower import Lower
from proctor.trial.task.second_look.changes import Entry, below
from proctor.trial.task.second_look.packages import Packages
from proctor.trial.task.second_look.tools import TaskText

_CODE = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_NO_CODE = re.compile(
    r"usr/(local/)?(share/(doc|man|info|locale|zoneinfo|fonts|icons|mime|applications|bug|lintian)|src|include)/"
    r"|usr/lib/(locale|debug)/"
)
_SITE_FOLDERS = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Look:
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


@dataclass(frozen=True, slots=True)
class Undo:
    """One change that the second verdict does without."""

    entry: Entry
    why: str
    content: bytes | None = None
    """What is there instead; None: what the image has, or nothing."""
    only_mark: bool = False
    """The folder stays and no longer hides what the image has there."""
    harmless: bool = False
    """It was of no effect in the first verdict either."""

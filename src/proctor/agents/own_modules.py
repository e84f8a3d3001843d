"""Import the module of an agent under a name that only this version of it has.

A process executes many runs, and two of them may bring different versions of one module. So `sys.path` stays
as it is, and `sys.modules` gets names that follow from the content: `proctor_agent_<digest>.my.module`. What
such a module imports by its plain name, at once or while it works, is its own neighbour where there is one.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import threading
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from proctor.model.spec import AgentCode

PREFIX = "proctor_agent_"


def load(code: AgentCode, module: str) -> ModuleType:
    """A module of the code. What it raises while it is imported is raised."""
    return importlib.import_module(f"{_known(code).package}.{module}")


def code_of(content: Path, module: str) -> AgentCode:
    """The stored content, at the project's own place while that holds the same: there its data is too."""
    place = _place_of(module.partition(".")[0])
    if place and all(_same(file, place / file.relative_to(content)) for file in content.rglob("*.py")):
        return AgentCode(content=str(content), folder=str(place))
    return AgentCode(content=str(content), folder=str(content))


def _place_of(top: str) -> Path | None:
    """The folder in which this process would find a module; nothing is imported."""
    try:
        spec = PathFinder.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).parent.resolve()
    return Path(spec.origin).parent.resolve() if spec.origin else None


def _same(one: Path, other: Path) -> bool:
    try:
        return one.read_bytes() == other.read_bytes()
    except OSError:
        return False


class _Code:
    """One version of an agent's code, as a package with a name of its own."""

    def __init__(self, code: AgentCode) -> None:
        self.content, self.folder = Path(code.content), Path(code.folder)
        place = sha256(f"{code.content} {code.folder}".encode()).hexdigest()
        self.package = f"{PREFIX}{place[:16]}"
        self.builtins = {**vars(builtins), "__import__": self._import}
        spec = ModuleSpec(self.package, None, is_package=True)
        spec.submodule_search_locations = [str(self.folder)]
        sys.modules[self.package] = module_from_spec(spec)
        self.importlib = _Importlib(self)

    def owns(self, name: str) -> bool:
        """Whether a plain name is one of its own modules."""
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names:
            return False
        return (self.content / f"{top}.py").is_file() or (self.content / top).is_dir()

    def _import(
        self,
        name: str,
        names: Mapping[str, Any] | None = None,
        local: Mapping[str, Any] | None = None,
        wanted: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """What `import` statements of its modules call."""
        if level == 0 and self.owns(name):
            found = builtins.__import__(f"{self.package}.{name}", names, local, wanted or ("",), 0)
            return found if wanted else sys.modules[f"{self.package}.{name.partition('.')[0]}"]
        found = builtins.__import__(name, names, local, wanted or (), level)
        return self.importlib if found is importlib else found


class _Importlib(ModuleType):
    """`importlib` as modules of the code see it: its `import_module` knows their neighbours."""

    def __init__(self, code: _Code) -> None:
        super().__init__("importlib")
        self._code = code

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """As the original."""
        own = not name.startswith(".") and self._code.owns(name)
        return importlib.import_module(f"{self._code.package}.{name}" if own else name, package)

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)


class _Loader(SourceFileLoader):
    """Reads the stored content, whatever has become of the project; compiled files are left aside."""

    def get_data(self, path: str) -> bytes:
        """The source of a file."""
        code = _CODES[self.name.partition(".")[0]]
        stored = code.content / Path(path).relative_to(code.folder)
        return (stored if stored.is_file() else Path(path)).read_bytes()

    def get_code(self, fullname: str) -> CodeType:
        """Compiled here: what lies beside the source may be of another version of the same second."""
        path = self.get_filename(fullname)
        compiled: CodeType = self.source_to_code(self.get_data(path), path)
        return compiled

    def exec_module(self, module: ModuleType) -> None:
        """With the `import` of its code."""
        module.__dict__["__builtins__"] = _CODES[self.name.partition(".")[0]].builtins
        super().exec_module(module)


class _Finder:
    """Finds the modules of all codes; nobody else's."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As the import system asks."""
        if not name.startswith(PREFIX):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and isinstance(spec.loader, SourceFileLoader) and spec.origin:
            spec.loader = _Loader(name, spec.origin)
            spec.cached = None
        return spec


_CODES: dict[str, _Code] = {}
"""By the name of their packages."""
_BY_CODE: dict[AgentCode, _Code] = {}
_LOCK = threading.Lock()


def _known(code: AgentCode) -> _Code:
    with _LOCK:
        if not any(isinstance(each, type) and each is _Finder for each in sys.meta_path):
            sys.meta_path.insert(0, _Finder)
        if code not in _BY_CODE:
            made = _BY_CODE[code] = _Code(code)
            _CODES[made.package] = made
        return _BY_CODE[code]

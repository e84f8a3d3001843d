"""Import one module of experiments below a folder that becomes a package with a made-up name.

So two folders may hold files of the same name, and files may import their neighbours, as `from .near
import x` or plainly `import near`. Used inside measured processes, hence os.path and not pathlib.
"""

from __future__ import annotations

import os.path
import sys
from contextlib import contextmanager, suppress
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from proctor.experiments.base import Registered

PREFIX = "proctor_folder_"
_NEIGHBOURS: list[str] = []
"""The folder last put on `sys.path` by `make_neighbours_importable`."""


def home_of(file: str, *, through_links: bool = False) -> tuple[str, str]:
    """The folder of experiments that a file is alone in, and the file's module name below it."""
    folder, name = os.path.split(os.path.abspath(file))
    root = os.path.dirname(folder) if name == "__init__.py" else folder
    return module_below(root, file, through_links=through_links)


def module_below(root: str, file: str, *, through_links: bool = False) -> tuple[str, str]:
    """A folder of experiments and the name of a module of it; links are resolved unless they must stay."""
    stem = os.path.splitext(os.path.relpath(file, root))[0]
    root = root if through_links else os.path.realpath(root)
    inner = [part for part in stem.split(os.sep) if part != "__init__"]
    return root, ".".join((_package_name(root), *inner))


def import_below(root: str, name: str) -> None:
    """Import a module by the name that `module_below` gave it."""
    invalidate_caches()
    with importable(root), _forget_neighbours(root):
        _make_package(root)
        import_module(name)


def make_neighbours_importable(registered: Registered) -> None:
    """Let an experiment's methods import files of its own folder; one experiment's folder at a time."""
    parts = registered.cls.__module__.split(".")
    depth = len(parts) - (2 if parts[0].startswith(PREFIX) else 1)
    depth += os.path.basename(registered.file) == "__init__.py"
    root = os.path.dirname(registered.file)
    for _ in range(depth):
        root = os.path.dirname(root)
    for old in _NEIGHBOURS:
        with suppress(ValueError):
            sys.path.remove(old)
    _NEIGHBOURS[:] = [] if root in sys.path else [root]
    sys.path.extend(_NEIGHBOURS)


@contextmanager
def importable(folder: str) -> Iterator[None]:
    """Let plain imports find the folder's files, after everything installed: `json.py` must not hide json."""
    added = folder not in sys.path
    if added:
        sys.path.append(folder)
    try:
        yield
    finally:
        if added:
            sys.path.remove(folder)


def _package_name(folder: str) -> str:
    # FNV-1a: hashlib would map OpenSSL, and binascii zlib, into every process forked for a measurement.
    found = 0xCBF29CE484222325
    for byte in folder.encode("utf-8", "surrogateescape"):
        found = (found ^ byte) * 0x100000001B3 & 0xFFFF_FFFF_FFFF_FFFF
    return f"{PREFIX}{found:016x}"


def _make_package(folder: str) -> None:
    """The made-up package of a folder; its `__init__.py` is run when there is one."""
    name = _package_name(folder)
    if name in sys.modules:
        return
    init = f"{folder}/__init__.py"
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [folder]
    if os.path.isfile(init):
        spec = spec_from_file_location(name, init, submodule_search_locations=[folder]) or spec
    module = sys.modules[name] = module_from_spec(spec)
    if spec.loader:
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise


@contextmanager
def _forget_neighbours(folder: str) -> Iterator[None]:
    """Drop plainly imported neighbours from `sys.modules`, where another folder's would meet them."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if not name.startswith(PREFIX) and file and os.path.dirname(file) == folder:
                del sys.modules[name]

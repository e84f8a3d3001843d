"""Find experiments: built in, in folders, files and modules, and behind entry points.

A module that fails to import is reported with the line that failed; everything else is still found.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from proctor.errors import NotFoundError, UsageError
from proctor.experiments import importing
from proctor.experiments.base import REGISTRY, Registered, same_class
from proctor.experiments.describe import parameters
from proctor.experiments.importing import home_of, import_below, importable, module_below
from proctor.settings import load_settings

BUILT_IN = "proctor.experiments"
BUILT_IN_MODULES = (
    "statement",
    "database.database_profiler",
    "database.memory_db",
    "database.pragma_profile",
    "perception.observation_flow",
    "perception.observation_profiler",
    "perception.perception_metrics",
    "redis.redis_memory",
    "simulation.system_profiler",
    "spatial.spatial_comprehensive",
    "spatial.spatial_index_profiler",
    "spatial.spatial_memory_profiler",
    "spatial.spatial_performance_analyzer",
    "suites.asv_benchmark",
    "suites.pytest_benchmark",
)
"""The modules with an experiment; what they are made from stands beside them and is not looked through."""
PACKED = "packed:"
"""Begins a source that was stored with a run: a folder, a file, or `FOLDER::MODULE`."""
_OURS = {__file__, importing.__file__, contextlib.__file__, import_module.__code__.co_filename}
"""Not where an import failed."""
_STAMPS: dict[str, tuple[int, int]] = {}
"""Module → the state of its file when it was loaded; an edited file is loaded again."""
_ALONE = threading.RLock()
_BY_MODULE: dict[str, dict[str, Registered]] = {}
"""Module → what it registered, independent of which module imported it first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What one module gave: experiments, or the reason why not."""

    source: str
    registered: tuple[Registered, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What was found, and what was in the way."""

    experiments: Mapping[str, Registered]
    broken: tuple[Loaded, ...] = ()
    """Modules that could not be imported, and experiments that cannot be used, each with its error."""
    twice: Mapping[str, str] = field(default_factory=dict)
    """Slug → the two places at which it is registered; which one is meant cannot be told."""


def discover(sources: Sequence[str] = ()) -> Discovery:
    """All experiments: the built-in ones, entry points, the settings' folders, then `sources`.

    A source is a folder, a `.py` file or a dotted module. A source that does not exist is an error.
    One thread at a time: while modules are imported, what is registered belongs to them.
    """
    with _ALONE:
        return _discover(sources)


def _discover(sources: Sequence[str]) -> Discovery:
    found: dict[str, Registered] = {}
    broken: list[Loaded] = []
    twice: dict[str, str] = {}
    for loaded in _load_all(sources):
        if loaded.error:
            broken.append(loaded)
        for entry in loaded.registered:
            other = found.get(entry.slug)
            if other and is_built_in(other) and not is_built_in(entry):
                other = None
                del found[entry.slug]  # also when the user's own turns out to be broken
            problem = _problem(entry, other)
            if problem:
                broken.append(Loaded(source=loaded.source, error=problem))
                if other and not same_class(other, entry):
                    twice[entry.slug] = problem
            elif other is None:
                found[entry.slug] = entry
    REGISTRY.update(found)
    experiments = dict(sorted(found.items()))
    return Discovery(experiments=experiments, broken=tuple(broken), twice=twice)


def is_built_in(entry: Registered) -> bool:
    """Whether an experiment comes with Proctor."""
    return entry.cls.__module__.startswith(f"{BUILT_IN}.")


def find(slug: str, sources: Sequence[str] = ()) -> Registered:
    """The experiment of that name, or NotFoundError with the nearest names and what is broken."""
    discovery = discover(sources)
    if slug in discovery.twice:
        raise UsageError(f"{discovery.twice[slug]}; rename one of them, or leave out one of the folders")
    if slug in discovery.experiments:
        return discovery.experiments[slug]
    from difflib import get_close_matches

    near = get_close_matches(slug, discovery.experiments, 3)
    hint = f"did you mean {_or(near)}?" if near else "see 'proctor list'"
    message = f"no experiment named '{slug}'; {hint}"
    if not near and not sources:
        message += "; name a folder of your own with --experiments"
    for each in discovery.broken:
        message += f"\n  not loaded: {each.error}"
    raise NotFoundError(message)


def shadowed(entry: Registered) -> tuple[str, ...]:
    """A note when a person's own experiment has the name of a built-in one."""
    if is_built_in(entry) or not any(
        each.slug == entry.slug and is_built_in(each) for loaded in _built_in() for each in loaded.registered
    ):
        return ()
    return (f"'{entry.slug}' is your own experiment at {entry.place}; the built-in one is not used",)


def _load_all(sources: Sequence[str]) -> Iterator[Loaded]:
    yield from _built_in()
    yield from load_entry_points("proctor.experiments")
    # A run that brings its sources has those of its settings among them, as they were.
    brought = any(source.startswith(PACKED) for source in sources)
    for source in () if brought else filter(None, load_settings().experiments.split(os.pathsep)):
        try:
            yield from _load(source)
        except NotFoundError as error:
            yield Loaded(source=source, error=f"setting 'experiments': {error}")
    for source in sources:
        yield from _load(source)


def _built_in() -> Iterator[Loaded]:
    for name in BUILT_IN_MODULES:
        yield _load_module(f"{BUILT_IN}.{name}")


def _load(source: str) -> Iterator[Loaded]:
    source, _, module = source.removeprefix(PACKED).partition("::")
    path = Path(source).expanduser()
    if module:
        yield from load_module_below(source, module)
        return
    if path.is_dir():
        yield from load_folder(path)
    elif path.is_file():
        yield load_file(path)
    elif not all(map(str.isidentifier, source.split("."))) or not module_exists(source):
        raise NotFoundError(f"{source}: no such folder, file or module")
    else:
        yield from load_module(source)


def _problem(entry: Registered, other: Registered | None) -> str:
    """Why this entry cannot be listed, or nothing."""
    if other and not same_class(other, entry):
        return f"experiment '{entry.slug}' is registered twice: at {other.place} and at {entry.place}"
    try:
        parameters(entry)
    except UsageError as error:
        return str(error)
    return ""


def _or(names: Sequence[str]) -> str:
    return " or ".join(f"'{name}'" for name in names)


def load_folder(folder: Path) -> Iterator[Loaded]:
    """Every module and package directly in a folder."""
    for file in modules_in(folder):
        loaded = _load_file(file, folder)
        yield loaded
        if loaded.error and file == folder / "__init__.py":
            return


def modules_in(folder: Path) -> Iterator[Path]:
    """The files of a folder in which experiments are looked for."""
    if (folder / "__init__.py").is_file():
        yield folder / "__init__.py"
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix == ".py" and _wanted(path.stem):
            yield path
        elif (path / "__init__.py").is_file() and _wanted(path.name):
            yield path / "__init__.py"
            yield from (inner for inner in sorted(path.glob("*.py")) if _wanted(inner.stem))


def load_file(file: Path, *, through_links: bool = False) -> Loaded:
    """One file of experiments; a package's `__init__.py` stands for the package."""
    return _load_below(file, *home_of(str(file), through_links=through_links))


def load_module(name: str) -> list[Loaded]:
    """A module by its dotted name; of a package, its direct modules too. The work folder is importable."""
    with importable(str(Path.cwd())):
        found = [_load_module(name)]
        for folder in getattr(sys.modules.get(name), "__path__", ()):
            stems = sorted(file.stem for file in Path(folder).glob("*.py"))
            found += [_load_module(f"{name}.{stem}") for stem in stems if _wanted(stem)]
    return found


def load_module_below(folder: str, name: str) -> list[Loaded]:
    """As `load_module`, found from a folder. What another folder gave under that name is forgotten."""
    top = name.partition(".")[0]
    for known in [each for each in sys.modules if each == top or each.startswith(f"{top}.")]:
        if not (getattr(sys.modules[known], "__file__", None) or folder).startswith(folder):
            del sys.modules[known]
            _BY_MODULE.pop(known, None)
    with importable(folder):
        return load_module(name)


def module_exists(name: str) -> bool:
    """Whether a module's outermost package can be found, without importing it."""
    with importable(str(Path.cwd())):
        try:
            return find_spec(name.partition(".")[0]) is not None
        except ValueError:
            return name in sys.modules


def load_entry_points(group: str) -> list[Loaded]:
    """The modules that installed packages offer under an entry-point group."""
    if not _any_entry_point(group):
        return []
    from importlib.metadata import entry_points

    modules = sorted({point.module for point in entry_points(group=group)})
    return [_load_module(module) for module in modules]


def _any_entry_point(group: str) -> bool:
    """Whether any installed package declares the group; cheaper than importing the metadata reader."""
    wanted = f"[{group}]".encode()
    for folder in sys.path:
        with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
            for each in entries:
                if each.name.endswith((".dist-info", ".egg-info")):
                    with contextlib.suppress(OSError), open(f"{each.path}/entry_points.txt", "rb") as file:  # noqa: PTH123 - hot
                        if wanted in file.read():
                            return True
    return False


def _wanted(stem: str) -> bool:
    return stem.isidentifier() and not stem.startswith(("_", "test_")) and stem not in {"conftest", "setup"}


def _load_file(file: Path, folder: Path) -> Loaded:
    """One file in a folder of experiments."""
    return _load_below(file, *module_below(str(folder), str(file)))


def _load_below(file: Path, root: str, name: str) -> Loaded:
    """Loaded again only when it has changed."""
    stat = file.stat()
    stamp = (stat.st_mtime_ns, stat.st_size)
    if _STAMPS.get(name, stamp) != stamp:
        sys.modules.pop(name, None)
        _BY_MODULE.pop(name, None)
    _STAMPS[name] = stamp
    return _collect(str(file), name, Path(root), lambda: import_below(root, name))


def _load_module(name: str) -> Loaded:
    return _collect(name, name, _package_folder(name), lambda: import_module(name))


def _collect(source: str, name: str, folder: Path | None, load: Callable[[], object]) -> Loaded:
    """Run an import, return what it registered, and turn any exception into one line."""
    earlier = {each.slug: each for each in REGISTRY.values() if each.cls.__module__ == name}
    before = dict(REGISTRY)
    REGISTRY.clear()
    error = ""
    try:
        # A module that prints while imported must not end up inside a command's JSON.
        with contextlib.redirect_stdout(sys.stderr):
            load()
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - the author's code: even SystemExit is only a bug of it
        error = _why(problem, source, folder)
    finally:
        gained = dict(REGISTRY)
        REGISTRY.clear()
        REGISTRY.update(before)
    if earlier and not error:
        # Another experiment may take its name in the registry; the module is imported only once.
        _BY_MODULE[name] = earlier | _BY_MODULE.get(name, {})
    for slug, each in gained.items():
        if each.cls.__module__ in sys.modules:  # a module that failed is not, its sound neighbours are
            _BY_MODULE.setdefault(each.cls.__module__, {})[slug] = each
    if error:
        return Loaded(source=source, error=error)
    return Loaded(source=source, registered=tuple((_BY_MODULE.get(name, {}) | gained).values()))


def _package_folder(name: str) -> Path | None:
    """The folder of a dotted module's outermost package."""
    top = name.partition(".")[0]
    with contextlib.suppress(ValueError):
        spec = find_spec(top)
        if spec and spec.origin:
            return Path(spec.origin).parent
    return None


def _why(error: BaseException, source: str, folder: Path | None) -> str:
    """`file:line: Type: message` of the place that failed, in the author's own code where it can be told."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = list(_frames(error.__traceback__))
    own = [place for place in frames if folder and Path(place[0]).is_relative_to(folder)]
    places = own or frames
    return f"{places[-1][0]}:{places[-1][1]}: {what}" if places else f"{source}: {what}"


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<frozen") and file not in _OURS:
            yield file, trace.tb_lineno
        trace = trace.tb_next

"""Store what a run is made from as blobs when it is created, so that any worker can execute it.

A task is packed once per digest. Of experiments and agents of one's own the Python files that they import are
packed; what is installed is known by its name, and compared by its digest where it is used.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from proctor.errors import TaskError
from proctor.model.canonical import canonical_json
from proctor.model.plan import Plan
from proctor.model.secret import without_values
from proctor.model.spec import Spec, TaskEntry
from proctor.runs.planning import experiment_sources
from proctor.settings import Settings
from proctor.store.blobs import Blobs
from proctor.store.inputs import Input, Inputs
from proctor.store.trees import Members, put_tree

OVERRIDES = ".proctor-overrides.json"
"""The content of overrides, beside the files that they name."""


class Packer:
    """Packs the inputs of one run."""

    def __init__(self, known: Inputs, blobs: Blobs, settings: Settings) -> None:
        self.known = known
        self.blobs = blobs
        self.cache_dir = settings.cache_dir
        self._own_experiments = [each for each in settings.experiments.split(os.pathsep) if each]
        self._found: list[Input] = []

    def pack(self, spec: Spec, plan: Plan) -> list[Input]:
        """Everything that executing the plan reads from the project."""
        self._tasks(plan)
        for at, entry in enumerate(spec.tasks):
            self._overrides(at, entry, Path(spec.base_dir))
            self._agents(at, entry)
        if spec.experiments:
            self._sources(spec)
        return self._found

    def _add(self, name: str, members: Members, place: str = "") -> None:
        kept = put_tree(self.blobs, members, name, self.cache_dir / "inputs")
        self._found.append(Input(name, kept.digest, kept.size_bytes, place))

    def _tasks(self, plan: Plan) -> None:
        """Each task once; one that is stored already costs a look."""
        folders = {trial.subject_digest: trial.path for trial in plan.trials if trial.path}
        known = self.known.known(task_name(digest) for digest in folders)
        for digest, path in folders.items():
            name, folder = task_name(digest), Path(path)
            if name in known and self.blobs.has(known[name].digest, keep=True):
                self._found.append(known[name])
            elif folder.is_dir():
                self._task(name, digest, folder)

    def _task(self, name: str, digest: str, folder: Path) -> None:
        from proctor.tasks.digest import task_digest

        try:
            if task_digest(folder, self.cache_dir) != digest:
                return  # it cannot be read, and is planned to end as invalid
            self._add(name, _tree(folder))
        except OSError as error:
            raise TaskError(f"{folder}: it cannot be stored ({error.strerror or error})") from error
        if task_digest(folder, self.cache_dir) != digest:
            raise TaskError(f"{folder}: the task was changed while the run was created; start it again")

    def _overrides(self, at: int, entry: TaskEntry, base_dir: Path) -> None:
        """Secrets in them become references, as in a spec."""
        if not entry.apply_overrides or entry.overrides is None:
            return
        from proctor.spec.secrets import concealed
        from proctor.tasks.overrides import overlay_sources
        from proctor.trial.task.prepare import config_overrides

        content, base = config_overrides(entry, base_dir)
        members: dict[str, Path | bytes] = {OVERRIDES: canonical_json(concealed(content)[0]).encode()}
        for source in overlay_sources(content, base).values():
            members |= _below(source, base)
        self._add(overrides_name(at), members, OVERRIDES)

    def _agents(self, at: int, entry: TaskEntry) -> None:
        from proctor.agents.registry import HARBOR, find_class

        for name in entry.agents:
            found = find_class(name)
            if (
                ":" in name
                and not name.startswith(HARBOR)
                and (files := _module_files(module := name.partition(":")[0]))
            ):
                self._add(f"agent/{at}/{name}", files, module)
            for option in getattr(found, "path_options", ()):
                given = without_values(entry.agent_options).get(option)
                if isinstance(given, str) and (path := Path(given)).exists():
                    folder = path.absolute().parent
                    self._add(option_name(at, option), dict(_below(path.absolute(), folder)), path.name)

    def _sources(self, spec: Spec) -> None:
        from proctor.experiments.base import REGISTRY

        files = [REGISTRY[each.experiment].file for each in spec.experiments if each.experiment in REGISTRY]
        used = [
            each
            for each in self._own_experiments
            if any(Path(file).is_relative_to(Path(each).expanduser().resolve()) for file in files)
        ]
        for source in dict.fromkeys((*used, *experiment_sources(spec))):
            self._source(f"source/{len(self._found):04}", Path(source).expanduser(), source)

    def _source(self, name: str, path: Path, source: str) -> None:
        from proctor.experiments.discover import modules_in
        from proctor.experiments.importing import home_of

        if path.is_dir():
            root = path.resolve()
            self._add(name, _python_files(modules_in(root), root, root.parent), root.name)
        elif path.is_file():
            root = Path(home_of(str(path))[0])
            starts = [path.resolve(), root / "__init__.py"]
            place = path.resolve().relative_to(root.parent).as_posix()
            self._add(name, _python_files(starts, root, root.parent), place)
        elif files := _module_files(source):
            self._add(name, files, f"::{source}")


def task_name(digest: str) -> str:
    """The name of a task among the inputs."""
    return f"task/{digest}"


def overrides_name(at: int) -> str:
    """The name of the overrides of an entry."""
    return f"overrides/{at}"


def option_name(at: int, option: str) -> str:
    """The name of the files that an option of an entry's agents means."""
    return f"option/{at}/{option}"


def _tree(folder: Path) -> Members:
    """What a task consists of: all that its digest covers, and its folders."""
    from proctor.tasks.digest import ignore_patterns, ignored

    patterns = ignore_patterns(folder)
    found: dict[str, Path | bytes] = {}
    for root, folders, names in os.walk(folder):
        base = os.path.relpath(root, folder)
        prefix = "" if base == "." else f"{base}/"
        folders[:] = [each for each in folders if not ignored(prefix + each, patterns)]
        for name in (*folders, *names):
            if not ignored(prefix + name, patterns):
                found[prefix + name] = folder / prefix / name
    return found


def _below(path: Path, base: Path) -> dict[str, Path | bytes]:
    """A file, or a folder with all that is in it, by names below `base`."""
    every = [path, *path.rglob("*")] if path.is_dir() else [path]
    return {each.relative_to(base).as_posix(): each for each in every}


def _python_files(starts: Iterable[Path], root: Path, base: Path) -> Members:
    """The files, and what they import from their own folder or from `root`; by names below `base`."""
    from proctor.experiments.source import source_files

    found: set[Path] = set()
    for start in starts:
        found |= source_files(start, start.parent) | source_files(start, root)
    return {each.relative_to(base).as_posix(): each for each in found}


def _module_files(name: str) -> Members:
    """The files of an imported module of one's own; nothing for one that is installed."""
    module, top = sys.modules.get(name), sys.modules.get(name.partition(".")[0])
    if module is None or top is None:
        return {}
    places = [*getattr(top, "__path__", ()), *filter(None, [getattr(top, "__file__", None)])]
    if not places or _is_installed(Path(places[0]).resolve()):
        return {}
    root = Path(places[0]).resolve().parent
    return _python_files(_starts(name, root), root, root)


def _starts(name: str, root: Path) -> Iterator[Path]:
    """The file of a module and those of the packages it is in; of a package, its direct modules too."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:length])
        yield place / "__init__.py"
        yield place.with_name(f"{place.name}.py")
    yield from root.joinpath(*parts).glob("*.py")


def _is_installed(place: Path) -> bool:
    """Whether a module comes with Python, with Proctor, or from a package that pip installed."""
    folders = {sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")}
    own = Path(__file__).resolve().parents[1]
    return any(place.is_relative_to(Path(each).resolve()) for each in folders) or place.is_relative_to(own)

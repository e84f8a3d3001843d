"""An asv suite as it is: the benchmarks that its modules hold, and all that asv reads about each of them."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType
    from typing import Any

KINDS = ("timeraw", "time", "peakmem", "mem", "track")
_NAMES = {kind: re.compile(rf"({kind.title()}[A-Z_].+|{kind}_.+)\Z") for kind in KINDS}
_NAMES["peakmem"] = re.compile(r"(PeakMem[A-Z_].+|peakmem_.+)\Z")
NOT_USED = (
    "repeat",
    "rounds",
    "processes",
    "sample_time",
    "warmup_time",
    "min_run_count",
    "goal_time",
    "timer",
)
"""How long and how often asv would measure; here the run or the comparison decides that."""
_CONFIGURATIONS = ("asv.conf.json", "asv.conf.jsonc")
_BENCHMARK_DIR = re.compile(r'^(?!\s*//)[^"\n]*"benchmark_dir"\s*:\s*"([^"]+)"', re.MULTILINE)
_LONGEST = 60


def find_suite(path: str) -> tuple[str, str | None]:
    """The suite's folder and, when one file was named, the module in it.

    A path may be asv's configuration, a folder that has one, the suite's folder, or a file in it.
    """
    folder = os.path.abspath(path)
    if os.path.basename(folder) in _CONFIGURATIONS:
        return _configured(folder), None
    if os.path.isfile(folder):
        whole = os.path.dirname(folder)
        while os.path.isfile(os.path.join(os.path.dirname(whole), "__init__.py")):
            whole = os.path.dirname(whole)
        module = os.path.splitext(os.path.relpath(folder, whole))[0]
        return whole, module.replace(os.sep, ".").removesuffix("__init__").rstrip(".")
    for name in _CONFIGURATIONS:
        if os.path.isfile(os.path.join(folder, name)):
            return _configured(os.path.join(folder, name)), None
    return folder, None


def _configured(file: str) -> str:
    with open(file, encoding="utf-8") as opened:
        found = _BENCHMARK_DIR.search(opened.read())
    return os.path.normpath(os.path.join(os.path.dirname(file), found[1] if found else "benchmarks"))


def modules(suite: str) -> Iterator[str]:
    """The names of a suite's modules, from the suite's folder downwards; none of them is imported."""
    for each in pkgutil.iter_modules([suite]):
        yield each.name
        if each.ispkg:
            yield from (f"{each.name}.{inner}" for inner in modules(os.path.join(suite, each.name)))


def load(suite: str, module: str) -> ModuleType:
    """A module of the suite, imported as asv does: the suite's folder is a package of its own name."""
    top = os.path.basename(suite)
    known = sys.modules.get(top)
    if known is None or list(getattr(known, "__path__", ())) != [suite]:
        init = os.path.join(suite, "__init__.py")
        spec = spec_from_file_location(
            top, init if os.path.isfile(init) else None, submodule_search_locations=[suite]
        )
        if spec is None:
            from importlib.machinery import ModuleSpec

            spec = ModuleSpec(top, None, is_package=True)
            spec.submodule_search_locations = [suite]
        sys.modules[top] = module_from_spec(spec)
        if spec.loader:
            spec.loader.exec_module(sys.modules[top])
    return importlib.import_module(f"{top}.{module}" if module else top)


def benchmarks(suite: str, module: str) -> Iterator[Benchmark]:
    """The benchmarks of one module, in the order of its source."""
    loaded = load(suite, module)
    for name, item in list(vars(loaded).items()):
        if name.startswith("_") or getattr(item, "__module__", None) != loaded.__name__:
            continue
        path = f"{module}.{name}" if module else name
        if inspect.isclass(item):
            if inspect.isabstract(item):
                continue
            for method in dir(item):
                kind = kind_of(method)
                if kind and callable(getattr(item, method)):
                    instance = item()
                    yield Benchmark(f"{path}.{method}", kind, getattr(instance, method), instance, loaded)
        elif (kind := kind_of(name)) and callable(item):
            yield Benchmark(path, kind, item, None, loaded)


def kind_of(name: str) -> str:
    """What a name says: time, timeraw, mem, peakmem or track; empty when it is no benchmark."""
    return next((kind for kind in KINDS if _NAMES[kind].match(name)), "")


def find(suite: str, name: str) -> Benchmark:
    """The benchmark of that name; LookupError when the suite has none."""
    parts = name.split(".")
    for length in (len(parts) - 2, len(parts) - 1):
        module = ".".join(parts[: max(length, 0)])
        if module in modules(suite) or not module:
            for each in benchmarks(suite, module):
                if each.name == name:
                    return each
    raise LookupError(f"{os.path.basename(suite)} has no benchmark {name}")


class Benchmark:
    """One benchmark, with what the function, its class and its module say about it."""

    def __init__(
        self, name: str, kind: str, function: Callable[..., Any], instance: Any, module: ModuleType
    ) -> None:
        self.name = name
        self.kind = kind
        self.function = function
        self._sources = [each for each in (function, instance, module) if each is not None]

    def get(self, name: str, default: Any = None) -> Any:
        """What the nearest of function, class and module says."""
        for source in self._sources:
            if (found := getattr(source, name, None)) is not None:
                return found
        return default

    def every(self, name: str) -> list[Callable[..., Any]]:
        """What each of them says, the module first."""
        found: list[Callable[..., Any]] = []
        for source in reversed(self._sources):
            each = getattr(source, name, None)
            if callable(each) and each not in found:
                found.append(each)
        return found

    @property
    def not_used(self) -> list[str]:
        """Keys that the suite sets and that have no effect here."""
        return [name for name in NOT_USED if self.get(name) is not None]

    def cases(self) -> dict[str, tuple[Any, ...]]:
        """Each combination of the parameters by a text that names it; without parameters, an empty one."""
        axes = list(self.get("params") or ())
        if axes and not isinstance(axes[0], tuple | list):
            axes = [axes]
        if not axes:
            return {"": ()}
        names = [*map(str, self.get("param_names") or ())][: len(axes)]
        names += [f"param{number + 1}" for number in range(len(names), len(axes))]
        columns = [_texts(axis) for axis in axes]
        return {
            ", ".join(f"{name}={text}" for name, text in zip(names, texts, strict=True)): values
            for texts, values in zip(product(*columns), product(*axes), strict=True)
        }


def _texts(values: Sequence[Any]) -> list[str]:
    """A short text for each value; values that would look alike get a number."""
    texts = [_text(value) for value in values]
    return [f"{text}#{at}" if texts.count(text) > 1 else text for at, text in enumerate(texts)]


def _text(value: Any) -> str:
    if callable(value) or inspect.ismodule(value):
        return str(getattr(value, "__name__", type(value).__name__))
    text = repr(value)
    if " at 0x" in text:
        text = type(value).__name__
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"

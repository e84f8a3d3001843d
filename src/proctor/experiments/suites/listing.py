"""Print what a suite has, as JSON: started by the suite's interpreter as a script, with Proctor's folder.

No benchmark is run; modules and conftest files are imported, because only then it is known what is in them.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def provide_proctor(folder: str) -> None:
    """Let `import proctor` find the version that started us, whatever is installed here."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("proctor", f"{folder}/__init__.py", submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    sys.modules["proctor"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["proctor"])


def make_importable(project: str, *, installed: bool = False) -> None:
    """Let the suite import its project from the project's folder, or first from what is installed."""
    folders = [each for each in (os.path.join(project, "src"), project) if os.path.isdir(each)]
    others = [each for each in sys.path if each not in folders]
    sys.path[:] = [*others, *folders] if installed else [*folders, *others]


def list_asv(project: str, paths: Sequence[str]) -> dict[str, Any]:
    """The benchmarks of asv suites."""
    from proctor.experiments.suites import asv

    found: list[dict[str, Any]] = []
    broken: list[list[str]] = []
    for path in paths:
        suite, only = asv.find_suite(path)
        for module in ["", *asv.modules(suite)] if only is None else [only]:
            try:
                for each in asv.benchmarks(suite, module):
                    shared = {"name": each.name, "kind": each.kind, "not_used": each.not_used}
                    place = os.path.relpath(suite, project).replace(os.sep, "/")
                    found += [{"suite": place, **shared, "case": case} for case in each.cases()]
            except BaseException as error:  # noqa: BLE001 - a module may raise anything when it is imported
                broken.append([module or os.path.basename(suite), in_words(error)])
    return {"found": found, "broken": broken, "skipped": [], "options": []}


def list_pytest(project: str, paths: Sequence[str], folder: str) -> dict[str, Any]:
    """The tests that use the fixture `benchmark`."""
    try:
        import pytest
    except ImportError:
        return {"missing": "pytest"}
    from proctor.experiments.suites.pytest_plugin import Lister, arguments

    os.chdir(project)
    lister = Lister(project)
    code = pytest.main([*arguments(folder), "--collect-only", *paths], plugins=[lister])
    broken = [[node, in_words(error)] for node, error in lister.errors]
    if code in {pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR} and not broken:
        return {"refused": f"pytest ended with exit code {int(code)}"}
    return {"found": lister.found, "broken": broken, "skipped": lister.skipped, "options": lister.options}


def in_words(error: BaseException) -> str:
    """One line about what was raised."""
    text = next((line for line in reversed(str(error).splitlines()) if line.strip()), "").strip()
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__


def main(given: Sequence[str]) -> int:
    """Print the listing as the last line; whatever else is printed goes to standard error."""
    proctor, kind, code, project, folder, *paths = given
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    provide_proctor(proctor)
    make_importable(project, installed=code == "installed")
    listed = list_asv(project, paths) if kind == "asv" else list_pytest(project, paths, folder)
    answers.write(json.dumps(listed) + "\n")
    answers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

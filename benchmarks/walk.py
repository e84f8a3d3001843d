"""How far one rollout walks through the source: modules, functions and changes of package of `proctor run`.

The second run of a rollout in a folder is profiled, so that images and caches are warm. A module counts when
one of its functions is executed; bodies of modules and classes do not count. A change of package is a pair of
functions: the caller, which is the nearest one of Proctor, is in another package than what it calls.

    python benchmarks/walk.py
    python benchmarks/walk.py --list
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from task_trials import make_task

SPEC = """\
name = "walk"
[[tasks]]
path = "{task}"
agent = "oracle"
rollouts = 1
[sandbox]
backend = "bubblewrap"
host_root = true
"""
MOST_MODULES, MOST_CHANGES = 90, 180

Function = tuple[str, str]
"""A module's path inside the package, and the function's qualified name."""


class Walk:
    """Collects what is called, in all threads of this process."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: dict[CodeType, Function | None] = {}
        self.functions: set[Function] = set()
        self.changes: set[tuple[Function, Function]] = set()

    def seen(self, frame: FrameType, event: str, _: object) -> None:
        """For `sys.setprofile`."""
        if event != "call" or (called := self._function(frame.f_code)) is None:
            return
        self.functions.add(called)
        caller = frame.f_back
        while caller is not None and self._function(caller.f_code) is None:
            caller = caller.f_back
        by = self._function(caller.f_code) if caller else None
        if by and package(by[0]) != package(called[0]):
            self.changes.add((by, called))

    def _function(self, code: CodeType) -> Function | None:
        if code not in self._known:
            ours = code.co_filename.startswith(self._root)
            body = not code.co_flags & 1  # CO_OPTIMIZED: of functions, not of modules and classes
            hidden = code.co_name.startswith("<")
            name = code.co_filename[len(self._root) :]
            self._known[code] = None if not ours or body or hidden else (name, code.co_qualname)
        return self._known[code]


def package(module: str) -> str:
    """The first folder below `proctor`; a module beside them is one of its own."""
    return module.partition("/")[0]


def walk(folder: Path) -> Walk:
    """The second run of one rollout, in a folder of its own."""
    import proctor
    from proctor.cli.main import main

    spec = folder / "walk.toml"
    spec.write_text(SPEC.format(task=make_task(folder / "task")))
    os.environ["PROCTOR_HOME"] = str(folder / "home")
    os.chdir(folder)
    found = Walk(str(Path(proctor.__file__).parent) + os.sep)
    for profiled in (False, True):
        if profiled:
            threading.setprofile(found.seen)
            sys.setprofile(found.seen)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            code = main(["run", str(spec)])
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        if code:
            raise SystemExit(f"proctor run ended with {code}\n{errors.getvalue()}")
    return found


def table(found: Walk) -> str:
    """A line per package."""
    modules = Counter(package(name) for name in {name for name, _ in found.functions})
    functions = Counter(package(name) for name, _ in found.functions)
    out = Counter(package(caller) for (caller, _), _ in found.changes)
    into = Counter(package(called) for _, (called, _) in found.changes)
    lines = [f"{'package':<16} {'modules':>8} {'functions':>10} {'calls out':>10} {'calls in':>9}"]
    lines += [
        f"{name:<16} {count:>8} {functions[name]:>10} {out[name]:>10} {into[name]:>9}"
        for name, count in modules.most_common()
    ]
    total = (modules.total(), functions.total(), len(found.changes), len(found.changes))
    lines.append(f"{'all':<16} {total[0]:>8} {total[1]:>10} {total[2]:>10} {total[3]:>9}")
    lines.append(f"goal: at most {MOST_MODULES} modules and {MOST_CHANGES} changes of package")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="also print every module and its functions")
    parser.add_argument("--changes", action="store_true", help="also print every change of package")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = walk(Path(folder))
        os.chdir(Path(__file__).parent)
    print(table(found))
    if wanted.list:
        counts = Counter(name for name, _ in found.functions)
        print("\n" + "\n".join(f"{count:>4}  {name}" for name, count in sorted(counts.items())))
    if wanted.changes:
        named = sorted((f"{a}:{b}", f"{c}:{d}") for (a, b), (c, d) in found.changes)
        print("\n" + "\n".join(f"{caller}  →  {called}" for caller, called in named))


if __name__ == "__main__":
    main()

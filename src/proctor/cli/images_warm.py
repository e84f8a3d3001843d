"""What `proctor images warm` does: make images ready one after the other, and say so."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict

from proctor.cli.table import print_json, printable
from proctor.errors import Exit
from proctor.runs.process_resources import Resources
from proctor.runs.warm import Warmed, wanted_by, warm
from proctor.settings import load_settings


def warm_all(what: str, *, parallel: int, as_json: bool) -> int:
    """Make every image ready; the exit code."""
    with Resources(load_settings(), create=False) as resources:
        return _warm_all(what, resources, parallel=parallel, as_json=as_json)


def _warm_all(what: str, resources: Resources, *, parallel: int, as_json: bool) -> int:
    wanted = wanted_by(what, resources)
    for problem in wanted.problems:
        print(f"skipped {printable(problem)}", file=sys.stderr)
    count = 0

    def show(done: Warmed) -> None:
        nonlocal count
        count += 1
        if done.error:
            print(f"proctor: {printable(done.task)}: {printable(done.error)}", file=sys.stderr, flush=True)
        elif not as_json:
            size = f"{done.layers} layers" if done.layers != 1 else "1 layer"
            line = f"[{count}] {printable(done.task)}  {done.digest[:12]}  {size}, {done.seconds:.1f} s"
            print(line, flush=True)

    rows = asyncio.run(warm(wanted, resources, parallel=parallel, on_done=show))
    if as_json:
        print_json({"images": [asdict(row) for row in rows], "skipped": list(wanted.problems)})
    if wanted.problems or any(row.task_is_wrong for row in rows):
        return Exit.WORSE
    return Exit.INFRASTRUCTURE if any(row.error for row in rows) else Exit.OK

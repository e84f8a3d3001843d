"""`proctor baseline`: pin runs as baselines, in a file for git."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from proctor.runfolder.read import RunData
    from proctor.store.open import StorePool
    from proctor.verdicts.gate.baselines import Baseline
    from proctor.verdicts.gate.inputs import GateInput


@click.group(name="baseline")
def command() -> None:
    """Pin the runs that gates compare with."""


def _file(function: Callable[..., int]) -> Callable[..., int]:
    option = click.option(
        "--baselines",
        "path",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The file of pinned baselines. [setting baselines: proctor-baselines.json]",
    )
    return option(function)


@command.command()
@click.argument("name")
@click.argument("ref", metavar="RUN")
@click.option("--reason", required=True, help="Why this run is the baseline.")
@_file
def pin(name: str, ref: str, reason: str, path: Path | None) -> int:
    """Pin RUN as baseline NAME, with the numbers that a gate needs."""
    return _pin(name, ref, reason, path, update=False)


@command.command()
@click.argument("name")
@click.argument("ref", metavar="RUN")
@click.option("--reason", required=True, help="Why the baseline changes.")
@_file
def update(name: str, ref: str, reason: str, path: Path | None) -> int:
    """Change baseline NAME to RUN; earlier pins stay in its history."""
    return _pin(name, ref, reason, path, update=True)


@command.command(name="list")
@_file
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def list_all(path: Path | None, as_json: bool) -> int:
    """List the baselines."""
    from proctor.cli.table import print_json, print_table, printable
    from proctor.quantity import moment

    known = sorted(_read(path).values(), key=lambda each: each.name)
    if as_json:
        print_json([_facts(each) for each in known])
        return Exit.OK
    if not known:
        print(f"no baseline in {_path(path)}; 'proctor baseline pin NAME RUN --reason …' makes one")
        return Exit.OK
    rows = [
        tuple(map(printable, (each.name, each.run_id, each.run_name, moment(each.at), each.reason)))
        for each in known
    ]
    print_table(("baseline", "run", "name", "pinned", "why"), rows, whole=(1, 3), wrap=(4,))
    return Exit.OK


@command.command()
@click.argument("name")
@_file
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def show(name: str, path: Path | None, as_json: bool) -> int:
    """Show one baseline and the history of its updates."""
    from proctor.cli.table import print_json, print_table, printable, say
    from proctor.quantity import moment

    found = _one(name, path)
    if as_json:
        print_json({**_facts(found), "history": [dict(each) for each in found.history]})
        return Exit.OK
    results = found.run.results
    say(f"{printable(found.name)}: {printable(results.label)}, {found.run.trials} trials", indent="  ")
    say(f"digest {printable(found.run.digest)}", indent="  ")
    metrics = sorted({name for point in results.points for name in point.samples})
    print(f"{len(results.tasks)} tasks, {len(results.points)} points")
    say(f"metrics: {printable(', '.join(metrics) or 'none')}", indent="  ")
    for metric, noise in found.run.noise.items():
        source = printable(noise.get("source"))
        say(f"noise of {printable(metric)}: {printable(noise.get('sigma'))} ({source})", indent="  ")
    rows = [
        tuple(
            printable(cell)
            for cell in (
                moment(float(each.get("at", 0))),
                each.get("run_id", ""),
                str(each.get("commit", ""))[:10],
                each.get("reason", ""),
            )
        )
        for each in found.history
    ]
    print()
    print_table(("pinned", "run", "commit", "why"), rows, whole=(0, 1, 2), wrap=(3,))
    return Exit.OK


@command.command()
@click.argument("name")
@_file
def rm(name: str, path: Path | None) -> int:
    """Remove NAME from the file; git still has it."""
    from proctor.verdicts.gate.baselines import write_baselines

    found = _one(name, path)
    known = _read(path)
    del known[found.name]
    write_baselines(_path(path), known)
    print(f"removed {found.name} from {_path(path)}")
    return Exit.OK


def _pin(name: str, ref: str, reason: str, path: Path | None, *, update: bool) -> int:
    import time

    from proctor.errors import UsageError
    from proctor.settings import load_settings
    from proctor.store.open import StorePool
    from proctor.verdicts.gate import baselines
    from proctor.verdicts.gate.open import opened

    with StorePool(load_settings().store_url, create=False) as stores, opened(ref, stores) as data:
        if isinstance(data, dict):
            raise UsageError(f"{ref}: a summary file cannot be pinned; name the run or its folder")
        run = _measured(data, stores)
    known = baselines.pin(
        baselines.read_baselines(_path(path)),
        name,
        run,
        run_name=data.info.name,
        reason=reason,
        at=time.time(),
        commit=str(data.info.vcs.get("commit") or ""),
        update=update,
    )
    baselines.write_baselines(_path(path), known)
    verb = "moved" if update else "pinned"
    print(f"{verb} {name} to run {run.results.run_id} in {_path(path)}; commit that file to share it")
    return Exit.OK


def _measured(data: RunData, stores: StorePool) -> GateInput:
    """The run with every metric that it has, and the noise that the store knows of the times."""
    import math
    from dataclasses import replace

    from proctor.verdicts.compare.judge import is_time
    from proctor.verdicts.compare.open import noise_from_store
    from proctor.verdicts.gate.inputs import input_of_run

    run = input_of_run(data)
    noise: dict[str, dict[str, Any]] = {}
    metrics = {metric for point in run.results.points for metric in point.samples if is_time(metric)}
    with stores.borrow() as store:
        for metric in sorted(metrics):
            found = noise_from_store(store, run.results, run.results, metric)
            if found and math.isfinite(found.df):
                noise[metric] = {"sigma": found.sigma, "df": found.df, "source": found.source}
    return replace(run, noise=noise)


def _path(path: Path | None) -> Path:
    from proctor.settings import load_settings

    return path or load_settings().baselines


def _read(path: Path | None) -> dict[str, Baseline]:
    from proctor.verdicts.gate.baselines import read_baselines

    return read_baselines(_path(path))


def _one(name: str, path: Path | None) -> Baseline:
    from proctor.verdicts.gate.baselines import missing

    known = _read(path)
    if name not in known:
        raise missing(name, known)
    return known[name]


def _facts(each: Baseline) -> dict[str, Any]:
    return {
        "name": each.name,
        "run_id": each.run_id,
        "run_name": each.run_name,
        "kind": each.run.results.kind,
        "digest": each.run.digest,
        "commit": each.commit,
        "at": each.at,
        "reason": each.reason,
        "trials": each.run.trials,
        "updates": len(each.history),
    }

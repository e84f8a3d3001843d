"""`proctor doctor`: what works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import click

from proctor.errors import Exit, ProctorError
from proctor.settings import Settings, load_settings


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    name: str
    state: Literal["ok", "warning", "missing", "broken"]
    detail: str
    remedy: str = ""


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(as_json: bool) -> int:
    """Look at Python, the store, the disk, the machine's noise and every optional part.

    Exit code 0 unless something that every run needs is broken (4).
    """
    from proctor.cli.table import print_json, print_table, say

    findings = list(examine(load_settings()))
    if as_json:
        print_json([asdict(each) for each in findings])
    else:
        marks = {"ok": "✓", "warning": "~", "missing": "–", "broken": "✗"}
        rows = [[f"{marks[each.state]} {each.name}", each.detail] for each in findings]
        print_table(["  what", "found"], rows, wrap=(0, 1))
        for each in findings:
            if each.remedy and each.state != "ok":
                print()
                say(f"{each.name}: {each.remedy}", indent="  ")
    broken = any(each.state == "broken" for each in findings)
    return Exit.INFRASTRUCTURE if broken else Exit.OK


def examine(settings: Settings) -> Iterator[Finding]:
    """Every check, cheap ones first. A check that itself fails is a finding, not a crash."""
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _python,
        _folders,
        _store,
        _machine,
        _programs,
        _sandboxes,
        _extras,
    )
    for check in checks:
        try:
            yield from check(settings)
        except Exception as error:  # noqa: BLE001 - the doctor reports what it could not examine
            yield Finding(check.__name__.strip("_"), "warning", f"could not be checked: {error}")


def _python(_: Settings) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    fine = sys.version_info >= (3, 11)
    yield Finding(
        "python", "ok" if fine else "broken", f"{version} at {sys.executable}", "Use Python 3.11 or later."
    )


def _folders(settings: Settings) -> Iterator[Finding]:
    for name, folder in (("home", settings.home), ("results", settings.output_dir)):
        place = folder.resolve()
        existing = next(each for each in (place, *place.parents) if each.exists())
        if not os.access(existing, os.W_OK):
            yield Finding(
                name, "broken", f"{place} cannot be written", f"Set PROCTOR_{name.upper()} elsewhere."
            )
            continue
        free = shutil.disk_usage(existing).free
        state: Literal["ok", "warning"] = "ok" if free > 1 << 30 else "warning"
        yield Finding(name, state, f"{place}, {free / (1 << 30):.1f} GiB free", "Less than 1 GiB is free.")


def _store(settings: Settings) -> Iterator[Finding]:
    if "://" not in settings.store_url and not Path(settings.store_url).exists():
        yield Finding("store", "ok", f"{settings.store_url}: does not exist yet; the first run creates it")
        if "://" in settings.blobs_url:
            yield from _blobs(settings, set())
        return
    from proctor.store.open import open_store

    try:
        with open_store(settings.store_url) as store:
            problems = store.check()
            count = len(store.runs(limit=1))
            wanted = store.live_blobs()
    except ProctorError as error:
        yield Finding(
            "store", "broken", str(error), "Move the file away to start a new store, or restore a copy."
        )
        return
    if problems:
        yield Finding(
            "store", "broken", "; ".join(problems[:3]), "Export what is readable and start a new store."
        )
    else:
        yield Finding("store", "ok", "sound" + ("" if count else ", no run yet"))
    yield from _blobs(settings, wanted)


def _blobs(settings: Settings, wanted: set[str]) -> Iterator[Finding]:
    """Whether the files that runs refer to are there. Their content is not read: there may be very many."""
    from proctor.store.blobs import blobs_of
    from proctor.store.soundness import missing_blobs

    try:
        blobs = blobs_of(settings)
        missing = missing_blobs(blobs, wanted)
    except ProctorError as error:
        yield Finding("blobs", "broken", str(error), "See docs/how-to/operate-the-store.md.")
        return
    if missing:
        some = ", ".join(digest[:12] for digest in missing[:3]) + (" …" if len(missing) > 3 else "")
        yield Finding(
            "blobs",
            "broken",
            f"{len(missing):,} of {len(wanted):,} files of runs are missing in {blobs.where}: {some}",
            "Restore the folder from a copy; logs and artifacts that were exported are in the run folders.",
        )
    elif wanted:
        yield Finding("blobs", "ok", f"{len(wanted):,} files, all present")
    elif blobs.remote:
        yield Finding("blobs", "ok", f"{blobs.where} can be reached, nothing in use yet")


def _machine(settings: Settings) -> Iterator[Finding]:
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    yield Finding(
        "load",
        "ok" if load < cores / 2 else "warning",
        f"{load:.2f} on {cores} cores",
        "Other programs are running: prefer `proctor ab`, which measures both sides in lockstep.",
    )
    yield _pace(settings)
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor.exists():
        mode = governor.read_text().strip()
        yield Finding(
            "governor",
            "ok" if mode == "performance" else "warning",
            mode,
            "The CPU frequency varies; `cpupower frequency-set -g performance` keeps it constant.",
        )
    else:
        yield Finding("governor", "ok", "not visible (virtual machine)")
    pinned = hasattr(os, "sched_setaffinity")
    yield Finding(
        "pinning", "ok" if pinned else "warning", "CPUs can be chosen" if pinned else "not available"
    )


def _pace(settings: Settings) -> Finding:
    """Whether the machine is as fast as it can be: neighbours on the same core are seen in nothing else."""
    from statistics import median

    from proctor.trial.point.pace import CALM_UP_TO, KnownPace, gauge_ns

    looks = []
    for _ in range(_LOOKS):
        looks.append(gauge_ns())
        time.sleep(_BETWEEN_LOOKS_S)
    best_ns = min([KnownPace(settings.home).best_ns or looks[0], *looks])
    calm = sum(each <= CALM_UP_TO * best_ns for each in looks) / len(looks)
    return Finding(
        "pace",
        "ok" if calm >= _MOSTLY else "warning",
        f"calm {calm:.0%} of the time, {median(looks) / best_ns:.2f} times slower than its best (median)",
        "Other programs use this processor: `measured: auto` waits for calm, `proctor ab` is not affected.",
    )


_LOOKS = 100
_BETWEEN_LOOKS_S = 0.003
_MOSTLY = 0.5
_PROGRAMS = {
    "git": "revisions in `proctor ab` and the VCS record",
    "valgrind": "exact instruction counts in the counters instrument",
}


def _programs(_: Settings) -> Iterator[Finding]:
    for name, purpose in _PROGRAMS.items():
        path = shutil.which(name)
        yield Finding(name, "ok" if path else "missing", path or f"not found: {purpose}")


def _sandboxes(settings: Settings) -> Iterator[Finding]:
    """Which back ends work here: a sandbox of each kind is really made, unless a quick look rules it out."""
    import asyncio

    from proctor.sandbox.choose import BACKENDS
    from proctor.sandbox.container.adjust import probe as probe_containers
    from proctor.sandbox.container.backend import Containers
    from proctor.sandbox.probe import Check, probe

    def found(kind: str, check: Check) -> Finding:
        state: Literal["ok", "warning", "missing"] = (
            "ok" if check.ok else "missing" if check.needed else "warning"
        )
        return Finding(f"{kind}: {check.name}", state, check.detail)

    home = settings.home / "sandboxes"
    for check in asyncio.run(probe(home)):
        yield found("bubblewrap", check)
    for name in ("podman", "docker"):
        if obstacle := BACKENDS[name].obstacle():
            yield Finding(f"sandbox {name}", "missing", obstacle)
            continue
        backend = BACKENDS[name].open(home, (), None)
        assert isinstance(backend, Containers)
        for check in asyncio.run(probe_containers(backend)):
            yield found(name, check)
    yield _harbor(settings)


def _harbor(settings: Settings) -> Finding:
    """Harbor's environments: they need accounts of others, so none is made here."""
    from proctor.sandbox.harbor.place import find_all

    for place in find_all(settings.cache_dir):
        untried = f"not tried: {', '.join(place.environments)}"
        return Finding("sandbox harbor:NAME", "ok", f"Harbor {place.version} is installed; {untried}")
    missing = "not installed: 'proctor agents install harbor' for sandboxes such as harbor:modal"
    return Finding("sandbox harbor:NAME", "missing", missing)


_EXTRAS = {
    "memray": ("profilers", "the memray instrument"),
    "pyinstrument": ("profilers", "the pyinstrument instrument"),
    "scipy": ("spatial", "a reference in spatial_comprehensive"),
    "sklearn": ("spatial", "a reference in spatial_comprehensive"),
    "psycopg": ("postgres", "a store on PostgreSQL"),
    "obstore": ("s3", "blobs on S3"),
}


def _extras(_: Settings) -> Iterator[Finding]:
    for module, (extra, purpose) in _EXTRAS.items():
        if find_spec(module):
            yield Finding(module, "ok", purpose)
        else:
            yield Finding(module, "missing", f"{purpose}: pip install 'proctor-bench[{extra}]'")

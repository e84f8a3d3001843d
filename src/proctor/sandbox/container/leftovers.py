"""Containers and builds of Proctor processes that were killed: found by their labels, and removed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from pathlib import Path

from proctor import owner, processes
from proctor.errors import SandboxError
from proctor.sandbox import reaper
from proctor.sandbox.container.command import remove
from proctor.sandbox.container.engine import Adjustment, Engine, ask, call

OWNER, PLACE, LOCK, BUILD = "proctor.owner", "proctor.place", "proctor.lock", "PROCTOR_BUILD"
_BUILDS = "builds"
_LEAVE_S = 5.0


def place_name() -> str:
    """Whose process ids these are: one process namespace during one boot of the machine."""
    return f"{owner.process_namespace()}-{owner.boot_id()}"


def is_dead(name: str, place: str, lock: str = "") -> bool:
    """Whether the owner that a container's labels name is gone: its lock tells, or else its process.

    An owner in another process namespace whose lock cannot be seen from here is taken to live.
    """
    if lock and (held := owner.is_held(Path(lock))) is not None:
        return not held and owner.process_lives(name) is not True
    namespace, _, boot = place.partition("-")
    ours, _, now = place_name().partition("-")
    if namespace != ours or not owner.owner_in(name):
        return False
    return boot != now or owner.process_lives(name) is False


def network_image(mark: str) -> str:
    """The empty image of the container that has the network of a build."""
    return f"localhost/proctor-empty:build-{mark}"


def build_folder(state: Path) -> Path:
    """Where the builds of an owner keep their temporary files."""
    return state / _BUILDS


async def reap(engine: Engine, fit: Adjustment, state_dir: Path) -> tuple[str, ...]:
    """Remove what dead owners left; a line for each thing."""
    done = [f"container {each}" for each in await _dead_containers(engine, fit)]
    if done:
        await remove(engine, fit, [each.removeprefix("container ") for each in done])
    for folder, _ in reaper.orphans(state_dir):
        if any(folder.glob("s*.json")):
            done += await remove_project_parts(engine, fit, f"{LOCK}={reaper.lock_of(folder)}")
        for place in sorted(build_folder(folder).glob("*")):
            done += await end_build_of(engine, fit, place.name, place)
            await call([engine.program, *fit.options, "image", "rm", "--force", network_image(place.name)])
        shutil.rmtree(folder, ignore_errors=True)
        done.append(f"folder {folder}")
    reaper.forget_locks(state_dir)
    return tuple(done)


async def end_build_of(engine: Engine, fit: Adjustment, mark: str, place: Path) -> list[str]:
    """End a build that bears a mark; remove its working containers and its temporary files in `place`."""
    done = []
    steps = {each.name for each in place.glob("buildah*")}
    for process in processes.marked(f"{BUILD}={mark}"):
        await asyncio.to_thread(_end_build, process)
        done.append(f"build process {process.pid}")
    for step in sorted(steps | {each.name for each in place.glob("buildah*")}):
        for runtime in filter(shutil.which, ("crun", "runc")):
            with contextlib.suppress(SandboxError):
                if (await call([runtime, "delete", "--force", f"buildah-{step}"])).code == 0:
                    done.append(f"build step {step}")
    if engine.build_marks and (containers := await _working_containers(engine, fit, mark)):
        await remove(engine, fit, containers)
        done += [f"build container {each}" for each in containers]
    shutil.rmtree(place, ignore_errors=True)
    return done


def _end_build(process: processes.Process) -> None:
    """Kill what a build runs and let the engine tidy up after it; kill the engine too if it does not go."""
    deadline = time.monotonic() + _LEAVE_S
    while processes.start_ticks(process.pid) == process.start_ticks and time.monotonic() < deadline:
        below = processes.descendants(process.pid)
        processes.kill_all([each for each in below if _namespace(each.pid) != _namespace(process.pid)])
        time.sleep(0.05)
    processes.kill_tree(process.pid)


def _namespace(pid: int) -> str:
    """The process namespace of a process: the steps of a build have one of their own."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


async def _dead_containers(engine: Engine, fit: Adjustment) -> list[str]:
    said = await ask(
        [engine.program, *fit.options, "ps", "--all", "--no-trunc", "--filter", f"label={OWNER}",
         "--format", engine.owners]
    )  # fmt: skip
    if said.code:
        raise SandboxError(f"{engine.name} cannot list containers: {said.reason}")
    rows = [line.split("\t") for line in said.out.splitlines()]
    return [row[0] for row in rows if len(row) in {3, 4} and is_dead(*row[1:])]


async def remove_project_parts(engine: Engine, fit: Adjustment, label: str) -> list[str]:
    """Networks and volumes of compose projects with a label; their containers have gone by now."""
    done = []
    base = [engine.program, *fit.options]
    for kind in ("network", "volume"):
        said = await call([*base, kind, "ls", "--quiet", "--filter", f"label={label}"])
        if said.out:
            await call([*base, kind, "rm", *said.out.split()])
        done += [f"{kind} {name}" for name in said.out.split()]
    return done


async def _working_containers(engine: Engine, fit: Adjustment, mark: str) -> list[str]:
    """Containers of builds have no labels, but they note the arguments of their build.

    The mark is that of one build, or the owner of many.
    """
    base = [engine.program, *fit.options]
    said = await ask([*base, "ps", "--all", "--external", "--no-trunc", "--format", "{{.ID}}"])
    root = await call([*base, "info", "--format", "{{.Store.GraphRoot}}"])
    found = []
    for ident in said.out.split():
        for file in Path(root.out.strip()).glob(f"*-containers/{ident}/userdata/buildah.json"):
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                if f"{json.loads(file.read_text())['Args'][BUILD]}.".startswith(f"{mark}."):
                    found.append(ident)
    return found

"""Make the images of tasks ready on this machine before a run needs them: pull, build, or take from another.

What a worker would do when a trial begins is done here, once for each image.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.errors import ProctorError, TaskError, UsageError
from proctor.model.spec import Spec, TaskEntry
from proctor.model.task import Task, TaskEnvironment
from proctor.runs.process_resources import Resources
from proctor.settings import Settings

_SPECS = frozenset({".yaml", ".yml", ".toml", ".json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The tasks whose images are to be ready, and how their sandboxes are made."""

    spec: Spec
    tasks: tuple[Task, ...]
    problems: tuple[str, ...] = ()
    """A line for each task that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """What became of one image."""

    task: str
    digest: str = ""
    layers: int = 0
    seconds: float = 0.0
    error: str = ""
    task_is_wrong: bool = False
    """Whether an author has to repair something; else trying again may help."""


def wanted_by(what: str, resources: Resources) -> Wanted:
    """What a spec, a folder or ZIP of tasks, or a run needs. UsageError when it is none of these."""
    path = Path(what)
    if path.suffix in _SPECS and path.is_file():
        from proctor.spec.load import load

        spec = load(path)
        if not spec.tasks:
            raise UsageError(f"{what}: experiments need no images; name a spec with tasks")
        return _found(spec, resources.settings)
    if path.exists():
        spec = Spec(name="warm", tasks=(TaskEntry(path=str(path.absolute())),))
        return _found(spec, resources.settings)
    return _of_run(what, resources)


def _found(spec: Spec, settings: Settings) -> Wanted:
    from proctor.tasks.dataset import find_tasks

    found = [
        find_tasks(entry, Path(spec.base_dir or "."), settings.cache_dir, settings.dataset_registries)
        for entry in spec.tasks
    ]
    problems = tuple(f"{task.name}: {task.error}" for each in found for task in each.broken)
    tasks = {task.digest: task for each in found for task in each.tasks}
    return Wanted(spec=spec, tasks=tuple(tasks.values()), problems=problems)


def _of_run(ref: str, resources: Resources) -> Wanted:
    """The tasks of a run as they were when it was made, from the blobs where they are not here."""
    from proctor.runs.inputs import RunInputs
    from proctor.spec.load import from_mapping

    cache_dir = resources.settings.cache_dir
    with resources.stores.borrow() as store:
        info = store.run(ref)
        spec = from_mapping(info.resolved, file=f"run {info.id}")
        inputs = RunInputs(resources.blobs, cache_dir, store.inputs.of(info.id))
        trials = {trial.subject_digest: trial for trial in store.planned(info.id)}
    if not spec.tasks:
        raise UsageError(f"run {info.id} has experiments, which need no images")
    tasks, problems = [], []
    for trial in trials.values():
        try:
            tasks.append(inputs.task(trial, cache_dir))
        except TaskError as error:
            problems.append(f"{trial.subject}: {error}")
    return Wanted(spec=spec, tasks=tuple(tasks), problems=tuple(problems))


async def warm(
    wanted: Wanted, resources: Resources, *, parallel: int, on_done: Callable[[Warmed], None]
) -> list[Warmed]:
    """Make every image ready, some at a time; one that fails does not stop the others."""
    from proctor.runs.exchange import exchange_of
    from proctor.runs.planning import network_allow
    from proctor.runs.ready import sandbox_name
    from proctor.sandbox.base import RootOptions
    from proctor.sandbox.certificates import read_ca_bundle
    from proctor.sandbox.choose import open_backend, open_images

    spec, settings = wanted.spec, resources.settings
    allowed = network_allow(spec, settings)
    backend = open_backend(
        sandbox_name(spec, settings),
        settings.home / "sandboxes",
        network_allow=allowed,
        ca_bundle=read_ca_bundle(settings.ca_bundle),
    )
    options = RootOptions(
        host_root=spec.sandbox.host_root, network_allow=allowed, exchange=exchange_of(resources)
    )
    images = open_images(backend, settings.cache_dir / "images", options)
    places = asyncio.Semaphore(parallel)

    async def one(task: Task, environment: TaskEnvironment | None) -> Warmed:
        async with places:
            began = time.monotonic()
            try:
                root = await images.root(task, environment)
                done = Warmed(task=task.name, digest=root.digest, layers=len(root.layers))
            except ProctorError as error:
                done = Warmed(task=task.name, error=str(error), task_is_wrong=isinstance(error, TaskError))
            done = replace(done, seconds=round(time.monotonic() - began, 3))
            on_done(done)
            return done

    try:
        return list(await asyncio.gather(*(one(*each) for each in _environments(wanted.tasks))))
    finally:
        await images.close()
        await backend.close()


def _environments(tasks: Sequence[Task]) -> Iterator[tuple[Task, TaskEnvironment | None]]:
    """Each task with its own environment, and with those that its verifiers have beside it."""
    for task in tasks:
        yield task, None
        for verifier in (task.verifier, *(step.verifier for step in task.steps)):
            if verifier.environment:
                yield task, verifier.environment

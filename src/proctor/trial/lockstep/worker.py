"""One side of a lockstep pair: a fresh process that loads the experiment and takes its turns when told.

It is started as a script by the interpreter of its side and imports next to nothing, because starting it
is the main price of a comparison and because that interpreter may not have Proctor installed. Orders come
as lines of marshalled hex and answers go out as Python literals: json would be a quarter of its start.
"""

from __future__ import annotations

import fcntl
import gc
import marshal
import os
import resource
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

    Call = Callable[[Any], Any]

_MOST_LOOPS = 10_000_000
_SPIN_TURNS = 5_000
_LOOKS = 5
_GARBAGE = 500
"""Between slots, collect when so many objects have been left over; each collection empties caches."""
_READING_NS = 10_000
"""As model.lockstep has it: this file imports nothing of Proctor."""
_AT_ONCE = 0.1
"""Code whose tasks want a CPU at the same time for this share of their CPU time is looked at again."""


def beside(name: str) -> Any:
    """A module from the file next to this one: `import proctor` may find another version, or none."""
    from importlib.machinery import ModuleSpec, SourceFileLoader

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    loader = SourceFileLoader(f"_proctor_lockstep_{name}", path)
    module = type(sys)(loader.name)
    module.__spec__ = ModuleSpec(loader.name, loader, origin=path)
    module.__file__ = path
    loader.exec_module(module)
    return module


clocks_of = beside("clocks")
Clocks, clocks_for, spin = clocks_of.Clocks, clocks_of.clocks_for, clocks_of.spin
Seeds = beside("seeds").Seeds


class AbandonedError(Exception):
    """The worker whose turn it was has ended; it has reported the reason to the parent."""


def main(reading_fd: int, writing_fd: int) -> int:
    """Answer the orders that come over one pipe on the other: load, then `probe` or `turns`, then the end."""
    for fd in (reading_fd, writing_fd):
        os.set_inheritable(fd, False)
    with os.fdopen(reading_fd, "r") as orders, os.fdopen(writing_fd, "w") as answers:

        def answer(**message: Any) -> None:
            answers.write(repr(message) + "\n")
            answers.flush()

        return serve(orders, answer)


def read_order(orders: TextIO) -> dict[str, Any]:
    """The next order of the parent, who is the only one at the other end; empty when there is none."""
    line = orders.readline()
    order: dict[str, Any] = marshal.loads(bytes.fromhex(line)) if line else {}  # noqa: S302 - our parent's
    return order


def serve(orders: TextIO, answer: Callable[..., None]) -> int:
    """The worker's life: 0 when all went well."""
    phase, experiment, context, result = "load", None, None, {}

    def work() -> None:
        nonlocal phase, result
        seeds.sow()
        phase = "execute_once"
        _first_call(experiment, context)
        seeds.sow()
        seeds.close()
        if reads:
            reads.close()
        answer(ready=True, recipe=recipe)
        order = read_order(orders)
        result = obey(order, experiment, context) if order else {}
        if "roots" in order:
            result |= came_from(order, reads)
        phase = "teardown"

    try:
        job = read_order(orders)
        reads = beside("reads").Reads() if job.get("listens") else None
        if job["heap_seed"] is not None:
            beside("layout").pad_heap(job["heap_seed"])
        seeds = Seeds(job["seed"])
        seeds.watch()
        experiment, context, recipe = load(job, seeds)
        phase = "setup"
        if around := getattr(experiment, "around_measuring", None):
            around(context, work)
        else:
            experiment.setup(context)
            work()
            experiment.teardown(context)
        answer(result=result)
    except AbandonedError:
        answer(abandoned=True)
        _tear_down(experiment, context)
        return 1
    except BaseException as error:  # noqa: BLE001 - whatever the experiment does is told to the parent
        answer(failure=failure(phase, error))
        if phase in {"setup", "execute_once"}:
            _tear_down(experiment, context)
        return 1
    return 0


def came_from(order: dict[str, Any], reads: Any) -> dict[str, Any]:
    """Where the measured code came from; asked in the probe and in pairs that confirm, after the slots."""
    of_reads = beside("reads")
    found = {"strangers": of_reads.strangers(order["roots"], order["foreign"], order["shared"])}
    if reads:
        found |= {
            "imported": sorted({file for _, file in of_reads.modules()}),
            "opened": reads.inside(order["roots"]),
            "starts_processes": reads.starts_processes,
        }
    return found


def _first_call(experiment: Any, context: Any) -> None:
    if prepare := getattr(experiment, "before_slot", None):
        prepare(context)
    experiment.execute_once(context)


def load(job: dict[str, Any], seeds: Any) -> tuple[Any, Any, str]:
    """The experiment of this side, its context, and the recipe by which the next worker makes it faster."""
    os.chdir(job["cwd"])
    sys.path.append(job["root"])
    if job["pycache"]:
        sys.pycache_prefix = job["pycache"]
    if job["own_pycache"]:
        beside("layout").keep_bytecode(job["root"], job["own_pycache"])
    provide_proctor(job["proctor"])
    from proctor.experiments.base import ExperimentContext

    experiment, recipe = quickly(job, seeds) or thoroughly(job, seeds)
    seeds.sow()
    run_dir = job["run_dir"]
    context = ExperimentContext(
        run_id=job["run_id"], output_dir=run_dir, run_dir=run_dir, seed=job["seed"] % 2**32
    )
    context.extras |= {"project": job["root"], "installed": job.get("installed", False)}
    return experiment, context, recipe


def quickly(job: dict[str, Any], seeds: Any) -> tuple[Any, str] | None:
    """Repeat what an earlier worker of this side found out: no search, no signature, no validation."""
    if not job["recipe"]:
        return None
    from proctor.experiments.base import REGISTRY, construct
    from proctor.experiments.importing import home_of, import_below, make_neighbours_importable

    if job["file"]:
        import_below(*home_of(job["file"], through_links=True))
    else:
        __import__(job["module"])
    registered = REGISTRY.get(job["slug"])
    if registered is None:
        return None
    make_neighbours_importable(registered)
    seeds.sow()
    recipe = marshal.loads(bytes.fromhex(job["recipe"]))  # noqa: S302 - a worker of this side wrote it
    return construct(registered.cls, *recipe), job["recipe"]


def thoroughly(job: dict[str, Any], seeds: Any) -> tuple[Any, str]:
    """Find the experiment, check the parameters against it, and make it."""
    from proctor.experiments.base import construct
    from proctor.experiments.describe import fitted

    registered = _registered(job)
    arguments = fitted(registered, job["params"])
    seeds.sow()
    recipe = ""
    if job["file"] or job["module"]:
        try:
            recipe = marshal.dumps(arguments).hex()
        except ValueError:
            recipe = ""  # a default that is not plain data
    return construct(registered.cls, *arguments), recipe


def _registered(job: dict[str, Any]) -> Any:
    """The registered class, from its own file or module alone where that is enough."""
    from pathlib import Path

    from proctor.experiments.discover import load_file, load_module

    loaded = []
    if job["file"]:
        loaded = [load_file(Path(job["file"]), through_links=True)]
    elif job["module"]:
        loaded = load_module(job["module"])
    for each in loaded:
        for entry in each.registered:
            if entry.slug == job["slug"]:
                return entry
    from proctor.experiments.discover import find

    job["file"] = job["module"] = ""
    return find(job["slug"], job["sources"])


def provide_proctor(folder: str) -> None:
    """Let `import proctor` find the package that started us, unless this side has its own."""
    from importlib.util import find_spec, module_from_spec, spec_from_file_location

    if find_spec("proctor") is not None:
        return
    spec = spec_from_file_location("proctor", f"{folder}/__init__.py", submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["proctor"] = module
    spec.loader.exec_module(module)


def obey(order: dict[str, Any], experiment: Any, context: Any) -> dict[str, Any]:
    """Carry out the one order after loading."""
    pinned = pin(order["cpu"])
    gc.collect()
    if not order["gc"]:
        gc.freeze()
        gc.disable()
    work = probe if order["do"] == "probe" else take_turns
    notes = list(getattr(experiment, "reader_notes", ()))
    return {**work(experiment, context, order), "pinned": pinned, "notes": notes}


def pin(cpu: int | None) -> bool:
    """Stay on one CPU with all threads, where the machine allows it."""
    if cpu is None:
        return False
    try:
        for task in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(task), {cpu})
    except (AttributeError, OSError):
        return False
    return True


def probe(experiment: Any, context: Any, order: dict[str, Any]) -> dict[str, Any]:
    """How many calls make a slot, and what a slot costs.

    A slot is measured in CPU time; code that mostly waits is measured in wall time, or it would never end.
    """
    call, clocks, target_ns = experiment.execute_once, clocks_for(experiment), order["slot_ns"]
    fixed = getattr(experiment, "slot_calls", 0)

    def cost(loops: int, looks: int = 1) -> tuple[int, list[int]]:
        slot = min(clocks.slot(call, context, loops) for _ in range(looks))
        wall, cpu, waited = slot[0], slot[1], slot[5]
        return (cpu if cpu >= (wall - waited) / 2 else wall), slot

    loops = fixed or 1
    spent, slot = cost(loops)
    while not fixed and spent < target_ns / 2 and loops < _MOST_LOOPS:
        loops = min(_MOST_LOOPS, loops * 10, max(loops * 2, loops * target_ns // max(spent, 1)))
        spent, slot = cost(loops)
    if spent < _LOOKS * target_ns * 10:
        spent, slot = cost(loops, _LOOKS)
    if loops > 1 and not fixed:
        loops = max(1, round(loops * target_ns / spent))
        spent, slot = cost(loops, _LOOKS)
    share = at_once(slot)
    if share > _AT_ONCE:  # a slot in which others took the CPU at a bad moment looks like this, but not each
        share = min(share, *(at_once(clocks.slot(call, context, loops)) for _ in range(_LOOKS)))
    return {"loops": loops, "slot": slot, "at_once": share}


def at_once(slot: list[int]) -> float:
    """For which share of its CPU time more than one of its threads and processes ran or wanted to."""
    wall, cpu, waited = slot[0], slot[1], slot[5]
    return max(0.0, (cpu + waited - wall - _READING_NS) / max(cpu, 1))


def take_turns(experiment: Any, context: Any, order: dict[str, Any]) -> dict[str, Any]:
    """Run my slots of the schedule, and hand the turn to the next worker."""
    me, schedule, loops = order["me"], order["schedule"], order["loops"] + order["extra_calls"]
    for fd in (order["my_turn"], *(turn for number, turn in enumerate(order["turns"]) if number != me)):
        os.set_inheritable(fd, False)
    call, clocks = experiment.execute_once, clocks_for(experiment)
    slowness = Slowness(order["spun_calls"], order["warmup"])
    slots: list[list[int]] = []
    collected = 0
    for step, owner in enumerate(schedule):
        if owner != me:
            continue
        if step and schedule[step - 1] != me and not os.read(order["my_turn"], 1):
            raise AbandonedError
        context.iteration_index = len(slots)
        slots.append(clocks.slot(call, context, loops, slowness.spins, order["lead"]))
        slowness.learn(slots[-1], loops)
        if not order["gc"] and gc.get_count()[0] > _GARBAGE:
            collected += gc.collect()
        if step + 1 < len(schedule) and schedule[step + 1] != me:
            _hand_over(order["turns"][schedule[step + 1]])
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"slots": slots, "collected": collected, "peak_rss_bytes": peak_bytes}


def _hand_over(turn: int) -> None:
    try:
        os.write(turn, b".")
    except BrokenPipeError:
        raise AbandonedError from None


class Slowness:
    """Deliberate slowness of less than a whole call: a spin that takes this fraction of one.

    It is calibrated in the warm-up slots, under the very conditions of the slots that count: how much slower
    a call is beside a busy neighbour differs from how much slower a spin is.
    """

    def __init__(self, fraction: float, warmup: int) -> None:
        self.fraction = fraction
        self.warmup = warmup
        self.spins = 0
        self._ratios: list[float] = []

    def learn(self, slot: list[int], loops: int) -> None:
        """After a slot; after the last slot of the warm-up the spin is set."""
        if not self.fraction or len(self._ratios) >= self.warmup:
            return
        before = time.process_time_ns()
        spin(_SPIN_TURNS)
        spin_ns = max(time.process_time_ns() - before, 1) / _SPIN_TURNS
        self._ratios.append(max(slot[1], slot[0] - slot[5]) / loops / spin_ns)
        if len(self._ratios) == self.warmup:
            self.spins = round(self.fraction * sorted(self._ratios)[self.warmup // 2])


def failure(phase: str, error: BaseException) -> dict[str, str]:
    """What went wrong, for the person who asked."""
    import traceback

    return {
        "phase": phase,
        "type": type(error).__name__,
        "message": str(error)[:2000],
        "traceback": "".join(traceback.format_exception(error))[-8000:],
    }


def _tear_down(experiment: Any, context: Any) -> None:
    try:
        experiment.teardown(context)
    except BaseException as error:  # noqa: BLE001 - the first failure is the one that is told
        sys.stderr.write(f"teardown raised as well: {error!r}\n")


def die_with(life_fd: int) -> None:
    """Have the kernel end this process, even in a hanging call, when the parent's end of a pipe closes."""
    os.set_inheritable(life_fd, False)
    fcntl.fcntl(life_fd, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(life_fd, fcntl.F_GETFL)
    fcntl.fcntl(life_fd, fcntl.F_SETFL, flags | os.O_ASYNC)


if __name__ == "__main__":
    die_with(int(sys.argv[3]))
    clocks_of.watch()
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))

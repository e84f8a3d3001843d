"""How quiet the machine was around a trial: load, stolen time, CPU pressure, frequency; and what it means."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from proctor.trial.point.calibrate import detectable_effect

_FREQUENCY = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"
_SHORT_S = 0.05
STEAL_LIMIT = 0.02
PRESSURE_LIMIT = 0.2


def look() -> dict[str, float]:
    """The kernel's counters now, as far as it has them."""
    found = {"at_s": time.monotonic()}
    if load := _read("/proc/loadavg"):
        found["load1"] = float(load.split()[0])
    # user, nice, system, idle, iowait, irq, softirq, steal
    if fields := _read("/proc/stat").partition(b"\n")[0].split()[1:9]:
        ticks = [int(each) for each in fields]
        found |= {"ticks": sum(ticks), "idle_ticks": sum(ticks[3:5]), "steal_ticks": ticks[7]}
    if waited := _read("/proc/pressure/cpu").partition(b"total=")[2].split():
        found["waited_us"] = float(waited[0])
    if frequency := _read(_FREQUENCY).strip():
        found["frequency_mhz"] = int(frequency) / 1000
    return found


def _read(name: str) -> bytes:
    try:
        with open(name, "rb", buffering=0) as file:  # noqa: PTH123 - at both ends of every trial
            return file.read(4096) or b""
    except OSError:
        return b""


class NoiseProbe:
    """Looks at the machine at both ends of each trial."""

    def __init__(self) -> None:
        self._last = look()

    def begin(self) -> dict[str, float]:
        """A look before the trial; one less than 50 ms old will do."""
        if time.monotonic() - self._last["at_s"] > _SHORT_S:
            self._last = look()
        return self._last

    def end(self, begun: Mapping[str, float]) -> dict[str, float]:
        """What happened since. A trial too short for the kernel's counters gives the load alone."""
        if time.monotonic() - begun["at_s"] <= _SHORT_S:
            return {"load1": begun["load1"]} if "load1" in begun else {}
        now = self._last = look()
        elapsed_s = now["at_s"] - begun["at_s"]
        found: dict[str, float] = {name: now[name] for name in ("load1", "frequency_mhz") if name in now}
        ticks = now.get("ticks", 0) - begun.get("ticks", 0)
        if ticks > 0:
            found["steal_fraction"] = (now["steal_ticks"] - begun["steal_ticks"]) / ticks
        if "waited_us" in now:
            found["cpu_pressure"] = (now["waited_us"] - begun["waited_us"]) / 1e6 / elapsed_s
        return found


def judge(
    rows: Sequence[Mapping[str, Any]],
    noise: Mapping[str, float],
    *,
    asked_effect: float,
    cores: int,
    scheduled: Sequence[int] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """What the noise did to these iterations, and a warning for each way in which it did too much.

    `asked_effect` is the relative precision that the spec asks for (`target_width`); `scheduled` how long the
    kernel says that the code ran, and that it was ready without a CPU.
    """
    # The lane of a measured process imports this module too, and has no use for these.
    from proctor.analysis.clock import CPU, headline_clock, waited_for_cpu, waiting_in

    good = [row for row in rows if "duration_s" in row]
    found: dict[str, Any] = dict(noise)
    notes: list[str] = []
    if not good:
        return found, notes
    wall_s = sum(row["duration_s"] for row in good)
    cpu_s = sum(row["cpu_s"] for row in good)
    switches = sum(row["involuntary_switches"] for row in good)
    found["cpu_over_wall"] = cpu_s / wall_s if wall_s > 0 else None
    found["involuntary_switches"] = switches
    if wall_s > 0 and (waited := waited_for_cpu(scheduled, cpu_s / wall_s)) is not None:
        found["waited_for_cpu"] = waited
    for clock in ("duration_s", "cpu_s"):
        found[f"detectable_effect_{clock}"] = detectable_effect([row[clock] for row in good])
    effect = found["detectable_effect_duration_s"]
    if effect is not None and effect > asked_effect:
        notes.append(_too_noisy(effect, found["detectable_effect_cpu_s"], asked_effect))
    if headline_clock([(waiting_in(found), True)]).metric == CPU:
        notes.append("other programs used the CPU: cpu_s is more reliable than duration_s here")
    return found, [*notes, *_machine_notes(noise, cores)]


def _too_noisy(effect: float, effect_cpu: float | None, asked: float) -> str:
    """Figures on a coarse scale, so that a report can count how many points have the same trouble."""
    text = f"too noisy for the requested {asked * 100:.3g} %: the smallest detectable change is "
    text += f"{_coarse(effect)} in duration_s"
    if effect_cpu is not None and effect_cpu < effect / 2:
        text += f" ({_coarse(effect_cpu)} in cpu_s)"
    return f"{text}; more iterations, a quieter machine or 'proctor ab' would help"


def _coarse(fraction: float) -> str:
    """The next of 1, 2, 5, 10, 20, 50 … percent above."""
    for percent in (1, 2, 5, 10, 20, 50, 100):
        if fraction * 100 <= percent:
            return f"{percent} %"
    return "over 100 %"


def _machine_notes(noise: Mapping[str, float], cores: int) -> list[str]:
    notes = []
    if noise.get("steal_fraction", 0) > STEAL_LIMIT:
        notes.append(f"the host gave more than {STEAL_LIMIT:.0%} of the CPU time to other virtual machines")
    if noise.get("cpu_pressure", 0) > PRESSURE_LIMIT:
        notes.append(f"some process was waiting for a CPU more than {PRESSURE_LIMIT:.0%} of the time")
    if noise.get("load1", 0) > cores:
        notes.append(f"the load was above the number of cores ({cores})")
    return notes

"""What a task certificate says, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.model.vetting import Check
from proctor.verdicts.vet.certificate import PRECEDENCE, TaskCertificate, TaskVerdict


def sentence(found: TaskCertificate) -> str:
    """The verdict and why, whole."""
    chosen = [each for each in found.findings if each.verdict is found.verdict]
    if not chosen:
        return f"{found.task} is sound: {_sound(found)}."
    others = [each for each in found.findings if each not in chosen]
    also = (
        f"; also {', '.join(f'{each.verdict.value}: {each.sentence}' for each in others)}" if others else ""
    )
    return f"{found.task} is {found.verdict.value}: {'; '.join(each.sentence for each in chosen)}{also}."


def _sound(found: TaskCertificate) -> str:
    parts = []
    oracle, nop = found.tried[Check.ORACLE], found.tried[Check.NOP]
    if oracle.passed:
        bound = f"with 95 % confidence it fails less than {100 * (found.flake_bound or 0):.0f} % of the time"
        parts.append(f"the oracle passed {oracle.passed} of {oracle.passed} ({bound})")
    if nop.failed:
        parts.append(f"an agent that does nothing passed 0 of {nop.failed}")
    held = [check.value.replace("_", " ") for check in Check if check.disturbed and found.tried[check].passed]
    if held:
        parts.append(f"it also passed under: {', '.join(held)}")
    return "; ".join(parts)


def not_tried(found: TaskCertificate) -> str:
    """What the certificate does not speak of, with the reasons."""
    skipped = [
        f"{check.value.replace('_', ' ')} ({each.skipped})"
        for check, each in found.tried.items()
        if each.skipped
    ]
    return f"not tried: {', '.join(skipped)}" if skipped else ""


def headline(found: Sequence[TaskCertificate]) -> str:
    """One sentence over all tasks."""
    counts = [(verdict, sum(each.verdict is verdict for each in found)) for verdict in PRECEDENCE]
    bad = [
        f"{count} {verdict.value}" for verdict, count in counts if count and verdict is not TaskVerdict.SOUND
    ]
    sound = dict(counts)[TaskVerdict.SOUND]
    if not bad:
        return "The task is sound." if len(found) == 1 else f"All {len(found)} tasks are sound."
    return f"{sound} of {len(found)} tasks are sound; {', '.join(bad)}."

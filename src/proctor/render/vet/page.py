"""Task certificates for people: one table, one sentence for each task, and where the evidence is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proctor.model.vetting import Check
from proctor.verdicts.vet.certificate import PRECEDENCE, Evidence, TaskCertificate, TaskVerdict, Tried

_SIGN = {TaskVerdict.SOUND: "✅", TaskVerdict.UNSETTLED: "❔"}


def headers(found: Sequence[TaskCertificate]) -> list[str]:
    """The task, the verdict, and each check that was tried with any task."""
    return ["task", "verdict", *(check.value.replace("_", " ") for check in columns(found))]


def columns(found: Sequence[TaskCertificate]) -> list[Check]:
    """The checks that were tried with any task."""
    return [check for check in Check if any(not each.tried[check].skipped for each in found)]


def row(each: TaskCertificate, checks: Sequence[Check]) -> list[str]:
    """Passes of trials for each check."""
    return [each.task, each.verdict.value, *(_cell(each.tried[check]) for check in checks)]


def _cell(tried: Tried) -> str:
    if tried.skipped:
        return "–"
    ended = tried.passed + tried.failed + tried.unjudged
    lost = f" (+{tried.errors + tried.missing})" if tried.errors or tried.missing else ""
    return f"{tried.passed}/{ended}{lost}"


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


def where(found: TaskCertificate, limit: int = 2) -> list[str]:
    """The trials that decided, and the folders with their logs."""
    chosen = [each for each in found.findings if each.verdict is found.verdict]
    seen: dict[int, Evidence] = {}
    for finding in chosen:
        for each in finding.evidence[:limit]:
            seen.setdefault(each.trial, each)
    root = Path(found.folder) if found.folder else Path()
    return [f"trial {each.trial} ({each.outcome}): {root / each.folder}" for each in seen.values()]


def ordered(found: Sequence[TaskCertificate]) -> list[TaskCertificate]:
    """The worst first."""
    return sorted(found, key=lambda each: (PRECEDENCE.index(each.verdict), each.task))


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


def markdown(found: Sequence[TaskCertificate], *, run_id: str) -> str:
    """One page over all tasks."""
    from proctor.render.gate.markdown import plain

    checks = columns(found)
    names = headers(found)
    lines = [
        "# Task certificates",
        "",
        f"**{plain(headline(found))}**",
        "",
        f"Run {plain(run_id)}. Cells: passed trials / all trials; `–`: not tried.",
        "",
        f"| | {' | '.join(names)} |",
        f"|{'---|' * (len(names) + 1)}",
    ]
    for each in ordered(found):
        cells = " | ".join(plain(cell) for cell in row(each, checks))
        lines.append(f"| {_SIGN.get(each.verdict, '❌')} | {cells} |")
    for each in ordered(found):
        lines += ["", f"## {plain(each.task)}", "", plain(sentence(each)), ""]
        lines += [f"- {plain(text)}" for text in (*where(each), not_tried(each), *each.notes) if text]
        lines.append(f"- content digest {each.digest}")
    return "\n".join(lines) + "\n"

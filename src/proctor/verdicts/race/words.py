"""The sentences about a race: what was found, what it saved and what it does not say."""

from __future__ import annotations

from collections.abc import Iterator

from proctor.quantity import plural, show
from proctor.verdicts.compare.sentence import points
from proctor.verdicts.gate.verdict import GateVerdict
from proctor.verdicts.race.judge import RaceResult

_TRADING = (
    "The error holds for a candidate that is no worse on any task. Where some tasks gain what others lose, "
    "'worse' is said more often; 'proctor compare' judges means."
)
_LOW = "Evidence that stays low proves nothing by itself; the interval says how large a loss could be."


def sentence(found: RaceResult) -> str:
    """The verdict and what it rests on."""
    return " ".join((_verdict(found), _evidence(found)))


def _verdict(found: RaceResult) -> str:
    design, margin = found.design, f"{100 * found.design.margin:g}"
    if found.verdict is GateVerdict.REGRESSION:
        return f"{design.candidate} is worse than {design.baseline}."
    if found.verdict is GateVerdict.PASS:
        return f"{design.candidate} is no worse than {design.baseline} by more than {margin} pp."
    if found.reason == "unfinished":
        return f"No verdict yet: {len(found.judged)} of {plural(found.planned, 'pair')} have ended."
    if found.reason == "lost":
        return (
            f"No verdict: {plural(found.void, 'pair')} could not be scored because of errors that no agent "
            "caused, and that leaves the answer open."
        )
    return (
        f"Inconclusive: no proof that {design.candidate} is worse than {design.baseline}, and a loss of "
        f"more than {margin} pp is not excluded."
    )


def _evidence(found: RaceResult) -> str:
    tally = found.latest.tally
    disagreed = tally.losses + tally.wins
    if not disagreed:
        return f"No pair disagrees, of {tally.pairs}."
    return (
        f"Of {plural(disagreed, 'pair')} that {'disagrees' if disagreed == 1 else 'disagree'} it lost "
        f"{tally.losses} and won {tally.wins}."
    )


def saving(found: RaceResult) -> str:
    """What was saved against the fixed design; a sentence in every case."""
    spent, pairs = found.spending, plural(found.planned, "pair")
    if found.reason == "unfinished":
        return f"{spent.ended} of {plural(spent.planned, 'rollout')} have ended."
    if not spent.saved and found.stopped_early:
        where = f"The race stopped at pair {len(found.judged)} of {found.planned}"
        return f"{where}; every rollout had begun by then."
    if not spent.saved:
        return f"All {pairs} were needed: nothing was saved."
    usd = f", about {show('cost_usd', spent.saved_usd)}" if spent.saved_usd else ""
    share = round(100 * spent.saved / spent.planned)
    return (
        f"The race stopped at pair {len(found.judged)} of {found.planned} and saved {spent.saved} of "
        f"{plural(spent.planned, 'rollout')} ({share} %{usd})."
    )


def effect(found: RaceResult) -> str:
    """How large the difference was among the pairs that were looked at, and what that is worth."""
    if found.difference is None:
        return ""
    seen = f"{points(found.difference)} among the {plural(found.latest.tally.pairs, 'pair')} that count"
    if found.verdict is GateVerdict.REGRESSION and found.stopped_early:
        return (
            f"{seen}. This is too large: a race that stops early stops on a bad stretch, so a repetition "
            "will probably show less"
        )
    if found.verdict is GateVerdict.REGRESSION:
        return f"{seen}. This is probably too large, because the race ended on a bad stretch"
    return seen


def limits(found: RaceResult) -> Iterator[tuple[str, str]]:
    """What a race does not say: a title and a sentence each."""
    tasks = len({each.pair.task for each in found.judged})
    if said := effect(found):
        yield "How large the difference is", f"{said}."
    if tasks:
        pairs = plural(found.latest.tally.pairs, "pair")
        yield "Which tasks", f"{pairs} judge {plural(tasks, 'task')} together; no single task is proven."
    yield "Tasks that trade places", _TRADING
    if found.verdict is GateVerdict.PASS or found.reason == "too_wide":
        yield "That nothing changed", _LOW


def unused(found: RaceResult) -> str:
    """What was run and is no evidence; empty when there is nothing of it."""
    spent, parts = found.spending, []
    if spent.cancelled and found.stopped_early:
        begun = plural(spent.cancelled, "rollout")
        parts.append(f"{begun} had begun when the verdict was reached: cancelled, no result")
    if spent.unused:
        parts.append(f"{plural(spent.unused, 'rollout')} ended behind the last pair looked at: no evidence")
    if found.void:
        parts.append(f"{plural(found.void, 'pair')} had an error that no agent caused: no evidence")
    return "; ".join(parts)

"""From the answers of a judge to scores: one vote from one answer, and what several votes come to. Pure."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from proctor.model.record import weighted
from proctor.model.spec import Criterion
from proctor.trial.judge.criteria import WHOLE

_MOST_ANSWER = 1 << 20
_MOST_REASON = 2000
Row = dict[str, object]
"""One rubric of a record: `id`, `description`, `weight`, `unit_score`, `judge_score`, `status`."""


class NotAVote(Exception):  # noqa: N818 - says what an answer is
    """The answer of a judge is not what was asked for; the message says why."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One answer of a judge."""

    scores: Mapping[str, float]
    reasons: Mapping[str, str]


def parse(answer: str, criteria: Sequence[Criterion]) -> Vote:
    """The vote that an answer is; NotAVote when it is none. Text around the object is forgiven."""
    start, end = answer.find("{"), answer.rfind("}")
    if not 0 <= start < end or len(answer) > _MOST_ANSWER:
        raise NotAVote("it has no JSON object" if len(answer) <= _MOST_ANSWER else "it is too long")
    try:
        rows = json.loads(answer[start : end + 1]).get("rubrics")
    except (ValueError, RecursionError) as error:
        raise NotAVote(f"it is not valid JSON: {error}") from error
    if not isinstance(rows, list):
        raise NotAVote("it has no list 'rubrics'")
    wanted = {each.id for each in criteria}
    scores: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for row in rows:
        name = row.get("id") if isinstance(row, dict) else None
        if not isinstance(name, str) or name not in wanted:
            raise NotAVote(f"'{str(name)[:80]}' is not the id of a rubric")
        if name in scores:
            raise NotAVote(f"it scores '{name}' twice")
        scores[name] = _score(row.get("score"), name)
        reasons[name] = str(row.get("reason", ""))[:_MOST_REASON]
    if missing := sorted(wanted - scores.keys()):
        raise NotAVote(f"it does not score '{missing[0]}'")
    return Vote(scores, reasons)


def _score(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NotAVote(f"the score of '{name}' is not a number")
    if not 0 <= value <= 1:
        raise NotAVote(f"the score of '{name}' is {value:g}, not between 0 and 1")
    return float(value)


def met(score: float) -> bool:
    """Whether a score says that a rubric is met rather than not."""
    return score >= 0.5


def agreement(scores: Sequence[float]) -> float | None:
    """The share of pairs of votes that say the same, met or not; None with fewer than two."""
    pairs = [met(one) == met(other) for one, other in combinations(scores, 2)]
    return sum(pairs) / len(pairs) if pairs else None


def joined(rows: Sequence[Row], criteria: Sequence[Criterion], votes: Sequence[Vote]) -> list[Row]:
    """The rubrics of a record with what the judge says: the median of its votes for each."""
    judged = {each.id: _judged(each, votes) for each in criteria}
    known = {str(row["id"]): row for row in rows}
    found: list[Row] = []
    for row in rows:
        said = judged.get(str(row["id"]), {})
        status = "judged" if said and row["unit_score"] is None else row["status"]
        found.append({**row, **said, "status": status})
    for each in criteria:
        if each.id not in known:
            about: Row = {"id": each.id, "description": each.criterion, "weight": each.weight}
            found.append({**about, "unit_score": None, **judged[each.id], "status": "judged"})
    return found


def _judged(criterion: Criterion, votes: Sequence[Vote]) -> Row:
    scores = [vote.scores[criterion.id] for vote in votes]
    return {
        "judge_score": statistics.median(scores),
        "votes": scores,
        "agreement": agreement(scores),
    }


def unjudged(rows: Sequence[Row]) -> list[Row]:
    """The rubrics of a record without what a judge has said before."""
    kept = [row for row in rows if row.get("status") != "judged" or row.get("unit_score") is not None]
    aside = {"votes", "agreement"}
    return [
        {**{name: value for name, value in row.items() if name not in aside}, "judge_score": None}
        for row in kept
    ]


def with_tests(rows: Sequence[Row], unit_score: float | None) -> dict[str, int]:
    """On how many rubrics judge and tests say the same, `of` those that both score.

    A task without rubrics of its own has one, which the tests score as a whole.
    """
    pairs = [
        (float(str(row["unit_score"])), float(str(row["judge_score"])))
        for row in rows
        if row.get("unit_score") is not None and row.get("judge_score") is not None
    ]
    if not pairs and unit_score is not None:
        pairs = [(unit_score, float(str(row["judge_score"]))) for row in rows if row["id"] == WHOLE.id]
    return {"same": sum(met(one) == met(other) for one, other in pairs), "of": len(pairs)}


def score_of(rows: Sequence[Row]) -> float | None:
    """The judge's score of a piece of work: the mean over its rubrics, by weight."""
    return weighted(rows, "judge_score")

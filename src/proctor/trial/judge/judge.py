"""Judge one piece of work: ask for votes, join them with what the tests found, and say what came of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.model.canonical import digest
from proctor.model.plan import PlannedTrial
from proctor.model.spec import Criterion, JudgeSpec
from proctor.model.trial import Lease
from proctor.trial.judge.ask import Ballot, Seat, ask
from proctor.trial.judge.prompt import VERSION, Material, Prompt, prompt
from proctor.trial.judge.votes import Row, joined, score_of, unjudged, with_tests
from proctor.trial.task.models import ModelGateway, new_token, sums

FILE = "judge.json"
TAPE = "judge-tape.jsonl.zst"
"""Not among the agent's tapes: their names begin otherwise."""
_UNITS = ("usd", "tokens", "requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a judge came to."""

    rows: list[Row]
    """The rubrics of the record."""
    summary: dict[str, Any]
    """`metrics.judge` of the record."""
    document: dict[str, Any] = field(default_factory=dict)
    """`judge.json`: the whole question, every answer and the reasons."""
    tape: bytes = b""
    missing: str = ""
    """Why there is no score; empty where there is one."""
    spent: bool = False
    """Whether it is missing because a budget is spent."""

    @property
    def score(self) -> float | None:
        """What the judge says of the work."""
        found: float | None = self.summary["score"]
        return found


async def judge(
    models: ModelGateway | None,
    spec: JudgeSpec,
    criteria: Sequence[Criterion],
    work: Material,
    trial: PlannedTrial,
    lease: Lease,
    *,
    rows: Sequence[Row],
    unit_score: float | None,
) -> Judged:
    """Ask a judge about a piece of work. What goes wrong with it is said in the result, never raised."""
    question = prompt(work, criteria, spec.max_bytes)
    known = unjudged(rows)
    summary = _head(spec, criteria, question, unit_score)
    if models is None or models.replay:
        missing = "the run is answered from a tape, and a judge is not" if models else "there is no gateway"
        return Judged(rows=known, summary={**summary, "missing": missing}, missing=missing)
    try:
        ballot = await ask(await models.opened(), spec, _seat(models, spec, trial, lease), question, criteria)
    except Exception as error:  # noqa: BLE001 - the trial keeps its reward whatever happens to its judge
        missing = f"the judge could not be asked: {error}"
        return Judged(rows=known, summary={**summary, "missing": missing}, missing=missing)
    return _counted(spec, criteria, question, ballot, known, summary)


def _head(
    spec: JudgeSpec, criteria: Sequence[Criterion], question: Prompt, unit_score: float | None
) -> dict[str, Any]:
    """What is known before anybody is asked."""
    return {
        "model": spec.model,
        "prompt": VERSION,
        "prompt_digest": question.digest,
        "rubrics_digest": digest([[each.id, each.criterion, each.weight] for each in criteria]),
        "decides": spec.reward == "judge",
        "asked": spec.votes,
        "valid": 0,
        "void": 0,
        "lost": 0,
        "score": None,
        "unit_score": unit_score,
        "agreement": None,
        "with_tests": {"same": 0, "of": 0},
        "cut": {name: dict(sizes) for name, sizes in question.cut.items()},
        "usage": {},
        "missing": "",
    }


def _seat(models: ModelGateway, spec: JudgeSpec, trial: PlannedTrial, lease: Lease) -> Seat:
    from proctor.store.portions import Scope
    from proctor.store.spending import DAY, Budget

    purse = Scope("judge", f"{lease.run_id}/{trial.body}")
    amounts: dict[str, Any] = {unit: getattr(spec, f"budget_{unit}") for unit in _UNITS}
    own = [Budget(scope=purse, **amounts)] if any(each is not None for each in amounts.values()) else []
    day = [each for each in models.budgets(trial, lease) if each.scope == DAY]
    return Seat(
        run_id=lease.run_id,
        trial=trial.index,
        attempt=lease.attempt,
        token=new_token(),
        purse=purse,
        budgets=(*own, *day),
    )


def _counted(
    spec: JudgeSpec,
    criteria: Sequence[Criterion],
    question: Prompt,
    ballot: Ballot,
    known: list[Row],
    summary: dict[str, Any],
) -> Judged:
    """Count the votes. More than half of those that were asked for must be valid."""
    votes, missing = ballot.votes, _missing(spec, ballot)
    rows = known if missing else joined(known, criteria, votes)
    shares = [each for row in rows if (each := row.get("agreement")) is not None]
    found = {
        **summary,
        "valid": len(votes),
        "void": len(ballot.void),
        "lost": len(ballot.lost),
        "score": None if missing else score_of(rows),
        "agreement": sum(float(str(each)) for each in shares) / len(shares) if shares else None,
        "with_tests": summary["with_tests"] if missing else with_tests(rows, summary["unit_score"]),
        "usage": sums(ballot.calls),
        "missing": missing,
    }
    document = {
        **found,
        "rubrics": [{"id": each.id, "criterion": each.criterion, "weight": each.weight} for each in criteria],
        "votes": [{"scores": dict(each.scores), "reasons": dict(each.reasons)} for each in votes],
        "void_votes": ballot.void,
        "lost_votes": ballot.lost,
        "answers": ballot.answers,
        "messages": [
            {"role": "system", "content": question.system},
            {"role": "user", "content": question.user},
        ],
    }
    return Judged(
        rows=rows, summary=found, document=document, tape=ballot.tape, missing=missing, spent=ballot.spent
    )


def _missing(spec: JudgeSpec, ballot: Ballot) -> str:
    if 2 * len(ballot.votes) > spec.votes:
        return ""
    said = [*dict.fromkeys(ballot.lost), *dict.fromkeys(ballot.void)]
    return f"only {len(ballot.votes)} of {spec.votes} votes are valid: {said[0]}"


def encoded(judged: Judged) -> bytes:
    """`judge.json` as bytes."""
    return (json.dumps(judged.document, indent=1, ensure_ascii=False) + "\n").encode(errors="replace")

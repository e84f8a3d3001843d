"""What a trial's folder says about its evaluation: `evaluation_results.json`, `scoring_results.md`, notes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.model.document import Cell, Column, Document, Listed, Section, Table, Text
from proctor.model.outcome import Outcome, is_pass
from proctor.model.place import attempt_folder
from proctor.model.plan import PlannedTrial
from proctor.model.record import (
    SCHEMA_VERSION,
    AttemptRecord,
    judge_of,
    judge_score,
    performance_of,
    rubrics_of,
    unit_score,
)
from proctor.quantity import MISSING, moment, number
from proctor.render.document.markdown import markdown
from proctor.render.results import performance
from proctor.render.results.cells import outcome_of, reward_cell, time_cell
from proctor.runfolder.files import encode, write_once
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts.document import agent_options, failure_fields
from proctor.verdicts.rollouts.evidence import changes_text

EVAL_LOG = "eval.log"
"""What the verifier printed; under `logs/` of each attempt."""


def evaluation(run_id: str, trial: PlannedTrial, record: AttemptRecord) -> dict[str, Any]:
    """The evaluation of one attempt, complete in itself."""
    judge, measured = judge_of(record), performance_of(record)
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "key": trial.key,
        "task": trial.subject,
        "task_digest": trial.subject_digest,
        "agent": trial.agent,
        "model": trial.model,
        "agent_options": agent_options(trial),
        "rollout": trial.rollout,
        "attempt": record.number,
        "outcome": record.outcome.value,
        "blame": record.outcome.blame.value,
        "scored": record.outcome.scored,
        "passed": is_pass(record.outcome, record.reward),
        "reward": record.reward,
        "total_score": record.reward,
        "max_score": 1.0,
        "unit_score": unit_score(record),
        "judge_score": judge_score(record),
        "rewards": _numbers(record.metrics.get("rewards")),
        "steps": dict(record.metrics.get("steps") or {}),
        "rubrics": rubrics_of(record),
        **({"judge": judge} if judge else {}),
        **({"performance": measured} if measured else {}),
        "evaluated_at": record.ended_at,
        "verify_s": number(record.phases_s.get("verify")),
        "log": f"logs/{EVAL_LOG}",
        "files": [each.name for each in record.artifacts if each.name.startswith("verifier/")],
        "failure": failure_fields(record.failure) if record.failure else None,
    }


def scoring(trial: PlannedTrial, record: AttemptRecord, found: Mapping[str, Any]) -> Document:
    """An evaluation for people: unit score and judge score side by side."""
    scores = (found["unit_score"], found["judge_score"])
    columns = (Column("unit score", "number"), Column("judge score", "number"))
    failure = record.failure
    why = f"In {failure.phase}: {failure.type}: {failure.message}"[:2000] if failure else ""
    return Document(
        kind="trial",
        title=trial.label,
        headline=f"{outcome_of(record.outcome).text}, reward {reward_cell(record.reward).text}",
        warnings=tuple(_cautions(record)),
        sections=(
            Section(blocks=(Table(columns=columns, rows=(tuple(map(reward_cell, scores)),)),)),
            *([_rubric_section(found["rubrics"])] if found["rubrics"] else []),
            *performance.of_attempt(found.get("performance", {})),
            *_judge_section(found.get("judge", {})),
            *_named("Rewards", found["rewards"], least=2),
            *_named("Steps", found["steps"], least=1),
            *([Section(title="Why", blocks=(Text(text=why),))] if why else []),
            Section(blocks=(Text(text=_evaluated(record)),)),
        ),
        links=(Cell(text=EVAL_LOG, href=f"logs/{EVAL_LOG}"),),
    )


def _cautions(record: AttemptRecord) -> Iterator[str]:
    if not record.outcome.scored:
        yield f"Not in the score: caused by the {record.outcome.blame.value}, not by the agent."
    if record.suspect:
        yield "Suspect: see artifacts/notes.md."


def _evaluated(record: AttemptRecord) -> str:
    took = f"agent and verifier took {time_cell(record.took_s).text}"
    return f"Evaluated {moment(record.ended_at)}; {took}. The verifier's output is in logs/{EVAL_LOG}."


def _rubric_section(rubrics: Sequence[Mapping[str, Any]]) -> Section:
    voted = any(each.get("votes") for each in rubrics)
    rows: tuple[tuple[Cell | str, ...], ...] = tuple(
        (
            str(each.get("id", "")),
            str(each.get("description", "") or MISSING),
            *(reward_cell(each.get(name)) for name in ("weight", "unit_score", "judge_score")),
            *([" ".join(f"{vote:g}" for vote in each.get("votes") or ()) or MISSING] if voted else []),
            str(each.get("status", "")),
        )
        for each in rubrics
    )
    untested = sum(each.get("status") == "untested" for each in rubrics)
    said = f"{untested} of {len(rubrics)} rubrics are untested: shown here, and not in the denominator."
    numbers = (Column(name, "number") for name in ("weight", "unit", "judge", *(["votes"] if voted else [])))
    table = Table(columns=(Column("rubric"), Column("what", "prose"), *numbers, Column("status")), rows=rows)
    return Section(title="Rubrics", blocks=(table,), note=said if untested else "")


def _judge_section(judge: Mapping[str, Any]) -> list[Section]:
    """Who judged, how the votes fell, and what is missing."""
    if not judge:
        return []
    votes = ", ".join(f"{judge.get(name, 0)} {name}" for name in ("asked", "valid", "void", "lost"))
    said = [f"{judge.get('model', '')}, prompt {judge.get('prompt', '')}; votes: {votes}."]
    if judge.get("missing"):
        said.append(f"There is no score of the judge: {judge['missing']}"[:2000])
    if (agreed := number(judge.get("agreement"))) is not None:
        said.append(f"{agreed:.0%} of the pairs of votes say the same about a rubric.")
    both = judge.get("with_tests") or {}
    if both.get("of"):
        said.append(f"Judge and tests say the same about {both['same']} of {both['of']} rubrics.")
    said += [
        f"The judge saw {sizes['shown']:,} of {sizes['of']:,} bytes of the {name}."
        for name, sizes in (judge.get("cut") or {}).items()
    ]
    said.append(
        "The reward is the judge's score." if judge.get("decides") else "The reward is the tests' alone."
    )
    return [Section(title="Judge", blocks=(Listed(items=tuple(said)),))]


def _named(title: str, values: Mapping[str, Any], *, least: int) -> list[Section]:
    if len(values) < least:
        return []
    rows = tuple((str(name), reward_cell(value)) for name, value in values.items())
    table = Table(columns=(Column("name"), Column("reward", "number")), rows=rows)
    return [Section(title=title, blocks=(table,))]


def _numbers(value: object) -> dict[str, float]:
    found = value.items() if isinstance(value, Mapping) else ()
    return {str(name): amount for name, each in found if (amount := number(each)) is not None}


def notes(trial: PlannedTrial, record: AttemptRecord) -> Document:
    """What a reader of the result should know, and what the agent used."""
    used = ", ".join(f"{name} {value:g}" for name, value in record.usage.items() if number(value))
    said = [each[:2000] for each in record.notes] + [each[:4000] for each in changes_text(record)]
    said += [f"used: {used}"] if used else []
    if record.outcome is not Outcome.PASSED and record.failure:
        said.append(f"{record.failure.phase}: {record.failure.message}"[:2000])
    block = Listed(items=tuple(said)) if said else Text(text="No notes.")
    return Document(
        kind="trial", title=f"Notes on {trial.label}", headline="", sections=(Section(blocks=(block,)),)
    )


def write(data: RunData, folder: Path) -> None:
    """These files for every attempt that counts; none that would be empty."""
    for trial in data.trials:
        record = trial.counted
        if record is None:
            continue
        place = f"{folder}/{attempt_folder(trial.planned, record.number)}"
        for name, text in files_of(data.info.id, trial.planned, record):
            if text and (name not in _EMPTY or not os.path.lexists(f"{place}/{name}")):
                write_once(f"{place}/{name}", text)


def files_of(run_id: str, trial: PlannedTrial, record: AttemptRecord) -> Iterator[tuple[str, str]]:
    """What the attempt's folder holds besides its artifacts: names inside it, and their text."""
    found = evaluation(run_id, trial, record)
    yield "evaluation_results.json", encode(found, lines=True) + "\n"
    yield "scoring_results.md", markdown(scoring(trial, record, found))
    yield "artifacts/notes.md", markdown(notes(trial, record))
    kept = {each.name for each in record.artifacts}
    yield from ((name, empty) for name, empty in _EMPTY.items() if name not in kept)


_EMPTY = {
    "artifacts/diff.patch": "",
    "artifacts/repo_info.json": '{"state": "not stored: the sandbox could not keep it"}\n',
    f"logs/{EVAL_LOG}": "",
}

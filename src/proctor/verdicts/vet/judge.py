"""From the trials of a vetting to a certificate for each task. Pure: the same run, the same certificates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from proctor.analysis.p_values import fisher
from proctor.model.outcome import Blame, Outcome, is_pass
from proctor.model.place import attempt_folder
from proctor.model.record import AttemptRecord
from proctor.model.vetting import Check, check_of
from proctor.runfolder.read import RunData, TrialResult
from proctor.verdicts.vet.certificate import Evidence, TaskCertificate, TaskFault, TaskVerdict, Tried

NAMES = {
    Check.ORACLE: "the oracle",
    Check.NOP: "an agent that does nothing",
    Check.ONE_CPU: "the oracle on one CPU",
    Check.NETWORK_OFF: "the oracle without network",
    Check.CLOCK: "the oracle 400 days ahead",
    Check.TIME_ZONE: "the oracle in another time zone",
    Check.LOADED: "the oracle on a busy machine",
}
_MEANING = {
    Check.CLOCK: TaskVerdict.ROTTING,
    Check.NETWORK_OFF: TaskVerdict.NETWORK,
    Check.ONE_CPU: TaskVerdict.FRAGILE,
    Check.TIME_ZONE: TaskVerdict.FRAGILE,
    Check.LOADED: TaskVerdict.FRAGILE,
}
MOST_EVIDENCE = 5
ALIKE = 0.05
"""Failure rates differ when the p-value is below this."""


def certificates(
    data: RunData, *, checks: Sequence[Check], left_out: Mapping[str, Mapping[str, str]]
) -> tuple[TaskCertificate, ...]:
    """One for each task of the run, in plan order. `left_out`: task digest → check → why it was not tried."""
    tasks: dict[tuple[str, str], list[TrialResult]] = {}
    for trial in data.trials:
        tasks.setdefault((trial.planned.subject, trial.planned.subject_digest), []).append(trial)
    return tuple(
        _certificate(data, name, digest, trials, checks, left_out.get(digest, {}))
        for (name, digest), trials in tasks.items()
    )


def _certificate(
    data: RunData,
    name: str,
    digest: str,
    trials: Sequence[TrialResult],
    checks: Sequence[Check],
    why_not: Mapping[str, str],
) -> TaskCertificate:
    by_check: dict[Check, list[TrialResult]] = {}
    for trial in trials:
        by_check.setdefault(check_of(trial.planned), []).append(trial)
    tried = {}
    for check in Check:
        reason = why_not.get(check.value, "" if check in checks else "not requested")
        tried[check] = _tried(check, by_check.get(check, ()), reason)
    ledgers = (trial.counted.ledger for trial in trials if trial.counted)
    return TaskCertificate(
        task=name,
        digest=digest,
        path=str(trials[0].planned.path or ""),
        findings=tuple(_findings(tried, trials)),
        tried=tried,
        notes=tuple(_notes(tried, trials)),
        run_id=data.info.id,
        folder=data.info.folder,
        backend=next((str(ledger["backend"]) for ledger in ledgers if ledger.get("backend")), ""),
        versions=data.info.versions,
    )


def _tried(check: Check, trials: Sequence[TrialResult], reason: str) -> Tried:
    known = [trial.counted for trial in trials if trial.counted]
    ended = [each for each in known if each.outcome is not Outcome.SKIPPED]
    skips = [trial for trial in trials if trial.outcome is Outcome.SKIPPED]
    if skips and not ended and not reason:
        record = skips[0].counted
        reason = record.failure.message if record and record.failure else "it was skipped"
    passed = sum(is_pass(each.outcome, each.reward) for each in ended)
    broken = sum(each.outcome.broken for each in ended)
    unjudged = sum(check is Check.NOP and each.outcome.blame is Blame.TASK for each in ended)
    return Tried(
        check=check,
        rollouts=len(trials),
        passed=passed,
        failed=len(ended) - passed - broken - unjudged,
        unjudged=unjudged,
        errors=broken,
        missing=len(trials) - len(known),
        skipped=reason if not ended else "",
        evidence=tuple(_evidence(check, trials)),
    )


def _evidence(check: Check, trials: Iterable[TrialResult]) -> Iterator[Evidence]:
    """The trials that ended as they should not; one that did when there are none."""
    counted = [(trial, trial.counted) for trial in trials if trial.counted]
    wrong = [(trial, record) for trial, record in counted if _is_wrong(check, record)]
    for trial, record in (wrong or counted[:1])[:MOST_EVIDENCE]:
        yield Evidence(
            trial=trial.planned.index,
            key=trial.planned.key,
            outcome=record.outcome.value,
            message=record.failure.message[:500] if record.failure else "",
            folder=attempt_folder(trial.planned, record.number),
        )


def _is_wrong(check: Check, record: AttemptRecord) -> bool:
    passed = is_pass(record.outcome, record.reward)
    if check is Check.NOP:
        return passed or not record.outcome.scored
    return not passed and record.outcome is not Outcome.SKIPPED


def _findings(tried: Mapping[Check, Tried], trials: Sequence[TrialResult]) -> Iterator[TaskFault]:
    if unread := _unread(trials):
        yield unread
        return
    plain = tried[Check.ORACLE]
    count = plain.passed + plain.failed
    if plain.failed and not plain.passed:
        yield _finding(
            TaskVerdict.BROKEN, plain, f"{NAMES[Check.ORACLE]} never passed in {count}{_why(plain)}"
        )
    elif plain.failed:
        yield _finding(
            TaskVerdict.FLAKY, plain, f"{NAMES[Check.ORACLE]} failed {plain.failed} of {count}{_why(plain)}"
        )
    yield from _of_nop(tried[Check.NOP])
    for check, meaning in _MEANING.items():
        each = tried[check]
        if each.failed and _is_the_disturbance(plain, each):
            text = f"{NAMES[check]} failed {each.failed} of {each.passed + each.failed}{_why(each)}"
            yield _finding(meaning, each, text)
    yield from _unsettled(tried)


def _is_the_disturbance(plain: Tried, disturbed: Tried) -> bool:
    """Whether a failure says more than that the oracle fails anyway."""
    if not plain.failed:
        return True
    counts = plain.passed + plain.failed, disturbed.passed + disturbed.failed
    rarer = plain.failed * counts[1] < disturbed.failed * counts[0]
    return rarer and fisher(plain.failed, counts[0], disturbed.failed, counts[1]) < ALIKE


def _unsettled(tried: Mapping[Check, Tried]) -> Iterator[TaskFault]:
    open_ones = [each for each in tried.values() if (each.errors or each.missing) and not each.settled]
    if open_ones:
        first = open_ones[0]
        names = ", ".join(NAMES[each.check] for each in open_ones)
        what = "has not ended" if first.missing else "was broken by infrastructure"
        yield _finding(TaskVerdict.UNSETTLED, first, f"every trial of {names} {what}{_why(first)}")
    elif not any(each.settled for each in tried.values()):
        first = next((each for each in tried.values() if each.rollouts), tried[Check.ORACLE])
        why = f": {first.skipped}" if first.skipped else ""
        yield _finding(TaskVerdict.UNSETTLED, first, f"nothing could be tried{why}")


def _unread(trials: Sequence[TrialResult]) -> TaskFault | None:
    for trial in trials:
        if trial.counted and trial.outcome is Outcome.INVALID:
            failure = trial.counted.failure
            message = failure.message if failure else "the task is not valid"
            check = check_of(trial.planned)
            return TaskFault(
                verdict=TaskVerdict.BROKEN,
                check=check,
                sentence=f"it cannot be run: {message}",
                evidence=tuple(_evidence(check, [trial])),
            )
    return None


def _of_nop(nop: Tried) -> Iterator[TaskFault]:
    count = nop.passed + nop.failed + nop.unjudged
    if nop.passed:
        yield _finding(
            TaskVerdict.LEAKING, nop, f"{NAMES[Check.NOP]} passed {nop.passed} of {count}{_why(nop)}"
        )
    if nop.unjudged:
        text = f"its tests gave no reward {nop.unjudged} of {count} times to {NAMES[Check.NOP]}"
        yield _finding(
            TaskVerdict.BROKEN, nop, f"{text}, so an agent that fails would not be scored{_why(nop)}"
        )


def _finding(verdict: TaskVerdict, tried: Tried, sentence: str) -> TaskFault:
    return TaskFault(verdict=verdict, check=tried.check, sentence=sentence, evidence=tried.evidence)


def _why(tried: Tried) -> str:
    """How the first of the trials ended."""
    if not tried.evidence:
        return ""
    first = tried.evidence[0]
    said = " ".join(first.message.split())[:160]
    return f" ({first.outcome.replace('_', ' ')}{f': {said}' if said else ''})"


def _notes(tried: Mapping[Check, Tried], trials: Sequence[TrialResult]) -> Iterator[str]:
    for each in tried.values():
        if each.errors and each.settled:
            yield f"infrastructure lost {each.errors} of {each.rollouts} trials of {NAMES[each.check]}"
    free = [
        record.reward
        for trial in trials
        if check_of(trial.planned) is Check.NOP
        and (record := trial.counted)
        and record.outcome is Outcome.PARTIAL
    ]
    if free:
        yield f"{NAMES[Check.NOP]} earned {max(each or 0.0 for each in free):g} of 1"
    if any(note.startswith("host-root") for trial in trials if trial.counted for note in trial.counted.notes):
        yield "built from this machine's own system: another machine may give another verdict"

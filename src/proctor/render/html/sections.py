"""The other sections: head, notices, failures, attempts, artifacts, environment, and how to run it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from proctor.model.outcome import Outcome
from proctor.model.record import AttemptRecord
from proctor.quantity import duration, number, show
from proctor.render.html.text import prose
from proctor.render.html.view import View, badge, details, facts, moment, section, table
from proctor.runfolder.read import TrialResult
from proctor.runfolder.result import artifact_paths
from proctor.verdicts.run.story import headline, warnings

MOST_FAILURES = 50
MOST_FILES = 200


def head(view: View) -> str:
    """The name, the sentence, and when and where it was measured."""
    info = view.data.info
    took = info.finished_at - info.started_at if info.finished_at and info.started_at else None
    commit = str(info.vcs.get("commit") or "")[:10]
    meta = [
        moment(info.started_at or info.created_at),
        f"took {duration(took)}" if took is not None else info.status.value,
        f"{len(view.data.trials)} trial{'s' * (len(view.data.trials) != 1)}",
        _machine(info.environment),
        f"commit {commit}{' with local changes' if info.vcs.get('dirty') else ''}" if commit else "",
    ]
    tags = "".join(f"<span class=tag>{escape(tag)}</span>" for tag in info.tags)
    notes = f"<p class=notes>{escape(info.notes)}</p>" if info.notes else ""
    line = " · ".join(escape(part) for part in meta if part)
    return (
        f"<header><p class=kicker>Proctor {escape(info.kind)} run <code>{escape(info.id)}</code> {tags}</p>"
        f"<h1>{escape(info.name)}</h1><p class=lead>{prose(headline(view.data))}</p>{notes}"
        f"<p class=meta>{line}</p></header>"
    )


def _machine(environment: Mapping[str, Any]) -> str:
    cpu = environment.get("cpu_model") or environment.get("cpu") or environment.get("machine") or ""
    return str(cpu) if isinstance(cpu, str) else str(cpu.get("model", "")) if isinstance(cpu, dict) else ""


def notices(view: View) -> str:
    """What to know before quoting a number."""
    found = warnings(view.data)
    if not found:
        return ""
    items = "".join(f"<li>{escape(each)}</li>" for each in found)
    title = "Before you quote these numbers"
    return f'<aside class="notice" aria-label="Warnings"><h2>{title}</h2><ul>{items}</ul></aside>'


def failures(view: View) -> str:
    """What went wrong, alike failures together, tracebacks folded away."""
    kinds: dict[tuple[str, str, str, str], list[tuple[str, AttemptRecord]]] = {}
    for group in view.groups:
        for trial in group.trials:
            if trial.counted and _worth_telling(trial.counted):
                failure = trial.counted.failure
                what = (failure.phase, failure.type, failure.message) if failure else ("", "", "")
                label = (
                    group.label(trial) if len(view.groups) == 1 else f"{group.subject}: {group.label(trial)}"
                )
                kinds.setdefault((trial.counted.outcome.value, *what), []).append((label, trial.counted))
    parts = []
    for (_, phase, kind, message), found in list(kinds.items())[:MOST_FAILURES]:
        labels = ", ".join(label for label, _ in found[:5]) + (
            f" and {len(found) - 5} more" if len(found) > 5 else ""
        )
        record = found[0][1]
        said = f"<code>{escape(kind)}</code>: {escape(message)}" if kind else "no details were recorded"
        where = escape(f"in {phase}, " if phase else "")
        title = f"{badge(record.outcome)} {said} <small>{where}{len(found)}×</small>"
        traceback = record.failure.traceback if record.failure else ""
        body = f"<p>{escape(labels)}</p>" + (f"<pre>{escape(traceback)}</pre>" if traceback else "")
        parts.append(details(title, body))
    if len(kinds) > MOST_FAILURES:
        parts.append(
            f"<p class=note>{len(kinds) - MOST_FAILURES} other kinds of failure are in series.jsonl.</p>"
        )
    return section("Failures", "".join(parts), name="failures")


def _worth_telling(record: AttemptRecord) -> bool:
    """Whether a failure is listed: an agent that did not solve its task is a normal result."""
    if record.outcome is Outcome.PASSED:
        return False
    return record.failure is not None or record.outcome not in {Outcome.FAILED, Outcome.PARTIAL}


def attempts(view: View) -> str:
    """Attempts that do not count, and why: they are kept, never hidden."""
    rows = []
    for trial in view.data.trials:
        for record in trial.attempts:
            if record is not trial.counted:
                said = f"{record.failure.type}: {record.failure.message}" if record.failure else ""
                rows.append(
                    [escape(trial.planned.label), str(record.number), badge(record.outcome), escape(said)]
                )
    if not rows:
        return ""
    body = table(["trial", "attempt", "outcome", "why"], rows[:MOST_FAILURES], numeric=(1,))
    if len(rows) > MOST_FAILURES:
        body += f"<p class=note>The first {MOST_FAILURES} of {len(rows)}.</p>"
    return section("Attempts that do not count", body, name="attempts")


def artifacts(view: View) -> str:
    """Profiles and other files, linked beside this page."""
    rows: list[list[str]] = []
    for trial in view.data.trials:
        if len(rows) > MOST_FILES:
            break
        rows += _files(trial)
    if not rows:
        return ""
    body = table(["file", "trial", "size"], rows[:MOST_FILES], numeric=(2,))
    if len(rows) > MOST_FILES:
        body += "<p class=note>More files are under trials/.</p>"
    return section("Files", details("Profiles and other artifacts", body), name="files")


def _files(trial: TrialResult) -> list[list[str]]:
    if not trial.counted or not trial.counted.artifacts:
        return []
    return [
        [
            f'<a href="{escape(quote(path))}">{escape(artifact.name)}</a>',
            escape(trial.planned.label),
            escape(show("size_bytes", artifact.size_bytes)),
        ]
        for artifact, path in zip(
            trial.counted.artifacts, artifact_paths(trial.planned, trial.counted), strict=True
        )
    ]


def environment(view: View) -> str:
    """Where it was measured."""
    info = view.data.info
    simple = [
        (name.removesuffix("_bytes"), _fact(name, value))
        for name, value in info.environment.items()
        if not isinstance(value, dict | list)
    ]
    nested = {
        name: value for name, value in info.environment.items() if isinstance(value, dict | list) and value
    }
    versions = [(name, str(value)) for name, value in info.versions.items()]
    body = facts([*versions, *((name.replace("_", " "), value) for name, value in simple)])
    for name, value in nested.items():
        if isinstance(value, dict) and len(value) <= 40:
            inside = facts((str(key), _plain(item)) for key, item in value.items())
        else:
            inside = f"<pre>{escape(_json(value))}</pre>"
        body += details(escape(name.replace("_", " ")), inside)
    if info.vcs:
        body += details("version control", facts((name, _plain(value)) for name, value in info.vcs.items()))
    return section("Environment", body, name="environment")


def reproduce(view: View) -> str:
    """The command that runs the same again, and the spec with all defaults."""
    info = view.data.info
    commands = []
    commit = info.vcs.get("commit")
    if commit:
        commands.append(f"git checkout {shlex.quote(str(commit))}")
    commands.append("proctor run spec.json")
    body = f"<p>In this run's folder:</p><pre class=command>{escape(chr(10).join(commands))}</pre>"
    if info.vcs.get("dirty"):
        body += "<p class=note>The working tree had local changes that are not in the commit.</p>"
    if info.resolved:
        body += details("The spec with all defaults", f"<pre>{escape(_json(info.resolved))}</pre>")
    if info.spec:
        body += details("The spec as written", f"<pre>{escape(_json(info.spec))}</pre>")
    return section("Run it again", body, name="reproduce")


def _plain(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        str(value)
        if not isinstance(value, dict | list)
        else json.dumps(value, ensure_ascii=False, default=str)
    )


def _fact(name: str, value: Any) -> str:
    amount = number(value)
    return show(name, amount) if amount is not None and name.endswith("_bytes") else _plain(value)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)

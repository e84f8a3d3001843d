"""Compare the documents of a receipt with the same documents generated again from its rows."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from proctor.errors import ProctorError, UsageError
from proctor.model.place import trial_folder
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRow
from proctor.receipt.archive import Archive, DamagedError
from proctor.receipt.differences import Difference, Findings, absent, compare, said, same
from proctor.receipt.rebuild import TrialDocuments, installed_version, write_run_documents
from proctor.runfolder.files import MAX_DOCUMENT_BYTES, decode
from proctor.runfolder.read import RunData
from proctor.runfolder.result import artifact_paths
from proctor.runfolder.series import NAME as SERIES

FIELDS_TOLD = 20
"""Of one document; a changed reward moves many numbers."""


class Recount:
    """Makes the documents of a receipt again, a trial at a time and then the run's, and compares."""

    def __init__(self, archive: Archive, data: RunData, digests: Mapping[str, str], found: Findings) -> None:
        self.same_version = archive.receipt.proctor == installed_version()
        self._data = data
        self._digests = digests
        self._found = found
        self._listed = {file.path for file in archive.receipt.files}
        self._known: set[str] = set()
        self._trials = TrialDocuments(data.info)
        self._comparison = _Comparison(archive, data, found, exact=self.same_version)
        self.made = 0
        if not self.same_version:
            found.note(
                f"packed by Proctor {archive.receipt.proctor:.40}, but this is {installed_version()}: "
                "numbers are compared, HTML and Markdown pages are not"
            )

    def trial(self, row: AttemptRow) -> None:
        """The documents of one attempt, if it counts, and the artifacts that belong there."""
        self._known.update(artifact_paths(row.trial, row.record))
        if row.counts:
            for path, content in self._trials.of(row.trial, row.record).items():
                self._compare(path, hashlib.sha256(content).hexdigest(), partial(bytes, content))

    def run(self, folder: Path) -> None:
        """The documents of the whole run, and the files that belong to nothing."""
        self._known.add(SERIES)
        try:
            write_run_documents(self._data, folder)
        except (ProctorError, ArithmeticError, ValueError, TypeError, KeyError) as error:
            self._found.add(Difference(file=SERIES, what=f"the documents cannot be generated again: {error}"))
            return
        made = {str(each.relative_to(folder)): each for each in folder.rglob("*") if each.is_file()}
        for path in sorted(made, key=_telling):
            self._compare(path, _sha256(made[path]), made[path].read_bytes)
        for path in sorted(self._listed - self._known) if self.same_version else ():
            self._found.add(Difference(file=path, what="belongs to no trial and to no report of this run"))

    def _compare(self, path: str, sha256: str, content: Callable[[], bytes]) -> None:
        self.made += 1
        self._known.add(path)
        if path in self._digests:
            if self._digests[path] != sha256:
                self._comparison.document(path, content())
        elif self.same_version and path not in self._listed:
            self._found.add(Difference(file=path, what="a run has this file, but the receipt does not"))


def _telling(path: str) -> tuple[bool, str]:
    """What names a field comes first."""
    return not path.endswith(".json"), path


class _Comparison:
    """Tells in which field two versions of a document differ."""

    def __init__(self, archive: Archive, data: RunData, found: Findings, *, exact: bool) -> None:
        self._archive = archive
        self._found = found
        self._exact = exact
        self._by_key = {trial.planned.key: trial.planned for trial in data.trials}
        self._folders = {trial_folder(trial.planned): trial.planned for trial in data.trials}

    def document(self, path: str, wanted: bytes) -> None:
        try:
            there = self._archive.read(path, MAX_DOCUMENT_BYTES)
        except DamagedError as error:
            self._found.add(Difference(file=path, what=str(error)))
            return
        if path.endswith(".json"):
            self._json(path, there, wanted)
        elif self._exact:
            self._text(path, there, wanted)

    def _json(self, path: str, there: bytes, wanted: bytes) -> None:
        try:
            recorded = decode(there, path)
        except UsageError as error:
            self._add(path, str(error).removeprefix(f"{path}: "))
            return
        told = differs = 0
        for field, one, other, owner in compare(recorded, json.loads(wanted)):
            if not self._exact and (absent(one) or absent(other) or _said_otherwise(field)):
                continue
            differs += 1
            if same(one, other):
                continue
            told += 1
            if told <= FIELDS_TOLD:
                what = f"{field}: recorded {said(one)}, the attempts give {said(other)}"
                self._add(path, what, self._by_key.get(owner), field, one, other)
        if told > FIELDS_TOLD:
            self._add(path, f"{told - FIELDS_TOLD} more fields differ from what the attempts give")
        for name in sorted(_named_twice(there)):
            self._add(path, f"{name}: appears twice, so readers may see different values", field=name)
        if not differs:
            self._found.note(f"{path} has the right values but a different layout")

    def _text(self, path: str, there: bytes, wanted: bytes) -> None:
        one, other = there.decode("utf-8", "replace"), wanted.decode("utf-8", "replace")
        at = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(one), len(other)) if at is None else at
        line, start = one.count("\n", 0, at) + 1, max(0, at - 20)
        pieces = said(one[start : at + 40]), said(other[start : at + 40])
        self._add(path, f"line {line}: recorded {pieces[0]}, the attempts give {pieces[1]}")

    def _add(
        self,
        path: str,
        what: str,
        trial: PlannedTrial | None = None,
        field: str = "",
        recorded: Any = None,
        expected: Any = None,
    ) -> None:
        self._found.add(
            Difference(
                file=path,
                what=what,
                trial=trial or self._trial_of(path),
                field=field,
                recorded=recorded,
                expected=expected,
            )
        )

    def _trial_of(self, path: str) -> PlannedTrial | None:
        """The trial whose folder contains a file."""
        folder = "/".join(path.split("/")[:3]).partition(".attempt-")[0]
        return self._folders.get(folder)


def _said_otherwise(field: str) -> bool:
    """Whether versions may differ in this: sentences for people, and the duration of a rollout.

    Until 0.1 a duration was all from start to end; it is now the agent's and the verifier's time. What it is
    made from, the phases and both moments, is in the rows and is compared.
    """
    names = re.sub(r"\[\d+\]", "", field).split(".")
    return bool({"headline", "warnings", "duration_s"} & set(names)) and "metrics" not in names


def _named_twice(text: bytes) -> set[str]:
    """Names that one object has twice; JSON does not say which of the two values holds."""
    found: set[str] = set()

    def pairs(items: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in items]
        found.update(name for name in names if names.count(name) > 1)

    json.loads(text, object_pairs_hook=pairs)
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

"""What people say about trials: labels and comments. They change no score."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from proctor.store import steps
from proctor.store.again import repeatable
from proctor.store.database import Database
from proctor.store.rows import column

_LABELS = "SELECT label FROM trial_labels WHERE run_id = :run AND idx = :idx"
_ADD_LABEL = """
INSERT INTO trial_labels (run_id, idx, label, author, at) VALUES (:run, :idx, :label, :author, {now})
ON CONFLICT (run_id, idx, label) DO NOTHING
"""
_REMOVE_LABEL = "DELETE FROM trial_labels WHERE run_id = :run AND idx = :idx AND label = :label"
_ADD_COMMENT = """
INSERT INTO trial_comments (id, run_id, idx, author, at, body)
VALUES (:id, :run, :idx, :author, {now}, :body)
"""
_AUTHOR = "SELECT author FROM trial_comments WHERE id = :id AND run_id = :run AND idx = :idx"
_REMOVE_COMMENT = "DELETE FROM trial_comments WHERE id = :id"


@repeatable
class Remarks:
    """Labels and comments."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def set_labels(self, run_id: str, index: int, labels: Iterable[str], author: str) -> None:
        """These labels and no others; whoever gave one first stays its author."""
        wanted = {column(each) for each in labels}
        place = {"run": run_id, "idx": index}
        with self._db.write() as tx:
            known = {str(row[0]) for row in tx.execute(_LABELS, place)}
            for label in sorted(known - wanted):
                tx.change(_REMOVE_LABEL, {**place, "label": label})
            for label in sorted(wanted - known):
                tx.change(_ADD_LABEL, {**place, "label": label, "author": column(author)})
            if known != wanted:
                steps.write_event(tx, run_id, "trial.labelled", {"labels": sorted(wanted)}, index)

    def comment(self, run_id: str, index: int, text: str, author: str) -> str:
        """Add a comment; its id."""
        comment_id = f"co_{secrets.token_hex(8)}"
        params = {"id": comment_id, "run": run_id, "idx": index, "author": column(author)}
        with self._db.write() as tx:
            tx.change(_ADD_COMMENT, {**params, "body": column(text)})
            steps.write_event(tx, run_id, "trial.commented", {"author": column(author)}, index)
        return comment_id

    def author(self, run_id: str, index: int, comment_id: str) -> str | None:
        """Who wrote a comment; None where there is none."""
        found = self._db.read(_AUTHOR, {"id": column(comment_id), "run": run_id, "idx": index})
        return str(found[0][0]) if found else None

    def remove_comment(self, comment_id: str) -> None:
        """Take a comment back."""
        with self._db.write() as tx:
            tx.change(_REMOVE_COMMENT, {"id": comment_id})

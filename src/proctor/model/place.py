"""Where a trial's files are inside a run folder: the same for writers and readers."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256

from proctor.model.plan import PlannedTrial

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@lru_cache(maxsize=1024)
def safe_name(text: str) -> str:
    """A name for a file or folder that is harmless anywhere; different texts stay different."""
    name = _UNSAFE.sub("-", text).strip("-.")[:80]
    if name and name == text:
        return name
    return f"{name or 'x'}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:6]}"


def trial_folder(trial: PlannedTrial) -> str:
    """The trial's folder. The index makes it unique; `org/task` becomes `org__task`."""
    return planned_folder(trial.subject, trial.index)


def planned_folder(subject: str, index: int) -> str:
    """The same, by what it is made of."""
    return f"trials/{safe_name(subject.replace('/', '__'))}/{index}"


def attempt_folder(trial: PlannedTrial, number: int) -> str:
    """The folder of one attempt at a task: the trial's own for the first, later ones beside it."""
    return trial_folder(trial) + (f".attempt-{number}" if number > 1 else "")

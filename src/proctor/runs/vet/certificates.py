"""The certificates that a stored vetting means."""

from __future__ import annotations

from proctor.runfolder.read import RunData
from proctor.runs.vet.planning import checks_of, left_out
from proctor.store.store import Store
from proctor.verdicts.vet.certificate import TaskCertificate
from proctor.verdicts.vet.judge import certificates


def certificates_of(store: Store, run_id: str) -> tuple[TaskCertificate, ...]:
    """One for each task of the vetting."""
    data = RunData.from_store(store, run_id)
    written = data.info.spec
    digests = {trial.planned.subject_digest for trial in data.trials}
    return certificates(
        data, checks=checks_of(written), left_out={each: left_out(written, each) for each in digests}
    )

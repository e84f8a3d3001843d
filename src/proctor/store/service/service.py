"""The server's part of a store, by what it is about."""

from __future__ import annotations

from proctor.store.database import Database
from proctor.store.service.accounts import Accounts
from proctor.store.service.answers import Answers
from proctor.store.service.audit import Audit
from proctor.store.service.figures import Monitor
from proctor.store.service.keys import Keys
from proctor.store.service.ownership import Ownership
from proctor.store.service.queue import Queue
from proctor.store.service.rollouts import Rollouts
from proctor.store.service.uploads import Uploads
from proctor.store.service.usual import Usual
from proctor.store.team.remarks import Remarks
from proctor.store.team.retention import Retention
from proctor.store.team.schedules import Schedules
from proctor.store.team.webhooks import Webhooks


class Service:
    """What a server keeps in the store besides runs."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @property
    def ownership(self) -> Ownership:
        """To whom runs belong."""
        return Ownership(self._db)

    @property
    def queue(self) -> Queue:
        """What is to be executed."""
        return Queue(self._db)

    @property
    def keys(self) -> Keys:
        """Keys of providers."""
        return Keys(self._db)

    @property
    def uploads(self) -> Uploads:
        """Tasks that people uploaded."""
        return Uploads(self._db)

    @property
    def accounts(self) -> Accounts:
        """Users, projects and tokens."""
        return Accounts(self._db)

    @property
    def audit(self) -> Audit:
        """Who did what."""
        return Audit(self._db)

    @property
    def answers(self) -> Answers:
        """Answers to requests with an idempotency key."""
        return Answers(self._db)

    @property
    def rollouts(self) -> Rollouts:
        """The trials of uploaded tasks."""
        return Rollouts(self._db)

    @property
    def monitor(self) -> Monitor:
        """Counts for monitors."""
        return Monitor(self._db)

    @property
    def usual(self) -> Usual:
        """What earlier trials took and cost."""
        return Usual(self._db)

    @property
    def schedules(self) -> Schedules:
        """Runs that start by themselves."""
        return Schedules(self._db)

    @property
    def webhooks(self) -> Webhooks:
        """Addresses that are told what happens."""
        return Webhooks(self._db)

    @property
    def remarks(self) -> Remarks:
        """Labels and comments on trials."""
        return Remarks(self._db)

    @property
    def retention(self) -> Retention:
        """Which files are old enough to go."""
        return Retention(self._db)

"""Users, projects and tokens. Of a token only its hash is kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from proctor.errors import NotFoundError
from proctor.store.again import repeatable
from proctor.store.database import Database, Row
from proctor.store.rows import column

_NANO = 1_000_000_000
_TOKEN_NAMES = "id, name, user_id, project, scopes, created_at, expires_at, revoked_at, used_at"  # noqa: S105 - columns
_TOKEN_COLUMNS = ", ".join(f"t.{name}" for name in _TOKEN_NAMES.split(", "))
_VALID = (
    "t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > {now}) "
    "AND EXISTS (SELECT 1 FROM users u WHERE u.id = t.user_id AND u.disabled = 0)"
)
_BY_HASH = f"SELECT {_TOKEN_COLUMNS} FROM tokens t WHERE t.hash = :hash AND {_VALID}"
_BY_SESSION = f"""
SELECT {_TOKEN_COLUMNS} FROM sessions s JOIN tokens t ON t.id = s.token_id
WHERE s.hash = :hash AND s.expires_at > {{now}} AND {_VALID}
"""
_TOKENS = f"SELECT {_TOKEN_COLUMNS} FROM tokens t WHERE t.id > :after ORDER BY t.id LIMIT :limit"
_TOKEN = f"SELECT {_TOKEN_COLUMNS} FROM tokens t WHERE t.id = :id"
_INSERT = """
INSERT INTO tokens (id, hash, name, user_id, project, scopes, created_at, expires_at)
VALUES (:id, :hash, :name, :user, :project, :scopes, {now}, CAST(:expires_at AS double precision))
"""
_VALID_TOKEN = f"{_TOKEN} AND {_VALID}"
_REVOKE = "UPDATE tokens SET revoked_at = {now} WHERE id = :id AND revoked_at IS NULL"
_USED = "UPDATE tokens SET used_at = {now} WHERE id = :id"
_FORGET_SIGN_INS = """
DELETE FROM tokens WHERE id LIKE 'oidc!_%' ESCAPE '!' AND expires_at <= {now} AND revoked_at IS NULL
"""
_ADD_SESSION = """
INSERT INTO sessions (hash, token_id, created_at, expires_at) VALUES (:hash, :token, {now}, {now} + :lasts_s)
"""
_END_SESSION = "DELETE FROM sessions WHERE hash = :hash OR expires_at <= {now}"
_ADD_USER = "INSERT INTO users (id, created_at) VALUES (:id, {now}) ON CONFLICT (id) DO NOTHING"
_USERS = "SELECT id, created_at, disabled FROM users WHERE id > :after ORDER BY id LIMIT :limit"
_WORKS = "SELECT 1 FROM users WHERE id = :id AND disabled = 0"
_DISABLE = "UPDATE users SET disabled = :disabled WHERE id = :id"
_PROJECT_COLUMNS = "id, title, created_at, max_runs, day_usd, keep_days"
_PROJECTS = f"""
SELECT {_PROJECT_COLUMNS} FROM projects
WHERE id > :after AND (CAST(:only AS text) IS NULL OR id = CAST(:only AS text)) ORDER BY id LIMIT :limit
"""
_PROJECT = f"SELECT {_PROJECT_COLUMNS} FROM projects WHERE id = :id"
_PUT_PROJECT = """
INSERT INTO projects (id, title, created_at, max_runs, day_usd, keep_days)
VALUES (:id, :title, {now}, :max_runs, :day_usd, :keep_days)
ON CONFLICT (id) DO UPDATE SET title = excluded.title, max_runs = excluded.max_runs,
  day_usd = excluded.day_usd, keep_days = excluded.keep_days
"""
_DELETE_PROJECT = """
DELETE FROM projects WHERE id = :id AND id <> 'default'
AND NOT EXISTS (SELECT 1 FROM run_service s WHERE s.project = :id)
"""
_MEMBERS = "SELECT user_id FROM members WHERE project = :project ORDER BY user_id"
_MEMBER = "SELECT 1 FROM members WHERE project = :project AND user_id = :user"
_ADD_MEMBER = """
INSERT INTO members (project, user_id) VALUES (:project, :user) ON CONFLICT (project, user_id) DO NOTHING
"""
_REMOVE_MEMBER = "DELETE FROM members WHERE project = :project AND user_id = :user"
_REVOKE_OF_MEMBER = """
UPDATE tokens SET revoked_at = {now} WHERE project = :project AND user_id = :user AND revoked_at IS NULL
"""
_PROJECTS_OF = "SELECT project FROM members WHERE user_id = :user ORDER BY project"
_SPENT = """
SELECT COALESCE(sum(CASE WHEN c.settled = 1 THEN COALESCE(c.nano_usd, 0) ELSE COALESCE(c.held_nano_usd, 0)
  END), 0)
FROM model_calls c LEFT JOIN run_service s ON s.run_id = c.run_id
WHERE COALESCE(s.project, 'default') = :project AND c.at >= {now} - :since_s
"""
_SECONDS_TODAY = "SELECT {now}"


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it may be shown."""

    id: str
    name: str
    user: str
    project: str | None
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None


@dataclass(frozen=True, slots=True)
class Project:
    """A project and what it may use."""

    id: str
    title: str
    created_at: float = 0.0
    max_runs: int | None = None
    """Runs at a time."""
    day_usd: float | None = None
    """Dollars a day (UTC) for models."""
    keep_days: int | None = None
    """How long runs are kept after their end."""


@repeatable
class Accounts:
    """Who may do what."""

    def __init__(self, db: Database) -> None:
        self._db = db

    # Tokens

    def token_by_hash(self, hashed: str) -> Token | None:
        """The token of a hash, while it is valid."""
        return _token(self._db.read(_BY_HASH, {"hash": hashed}))

    def token_by_session(self, hashed: str) -> Token | None:
        """The token behind a session cookie, while both are valid."""
        return _token(self._db.read(_BY_SESSION, {"hash": hashed}))

    def token(self, token_id: str) -> Token | None:
        """One token, valid or not."""
        return _token(self._db.read(_TOKEN, {"id": column(token_id)}))

    def valid_token(self, token_id: str) -> Token | None:
        """One token, while it is valid."""
        return _token(self._db.read(_VALID_TOKEN, {"id": column(token_id)}))

    def tokens(self, *, after: str = "", limit: int = 500) -> list[Token]:
        """All tokens."""
        found = self._db.read(_TOKENS, {"after": after, "limit": limit})
        return [each for row in found if (each := _token([row]))]

    def add_token(
        self,
        token_id: str,
        hashed: str,
        *,
        name: str,
        user: str,
        project: str | None,
        scopes: Collection[str],
        expires_at: float | None,
        member: bool = True,
    ) -> None:
        """Write a token; its user is made where there is none, and with `member` is one of its project."""
        with self._db.write() as tx:
            tx.change(_ADD_USER, {"id": column(user)})
            if member and project is not None:
                tx.change(_ADD_MEMBER, {"project": project, "user": column(user)})
            tx.change(
                _INSERT,
                {
                    "id": token_id,
                    "hash": hashed,
                    "name": column(name),
                    "user": column(user),
                    "project": project,
                    "scopes": " ".join(sorted(scopes)),
                    "expires_at": expires_at,
                },
            )

    def revoke(self, token_id: str) -> bool:
        """End a token; False when it is over already."""
        with self._db.write() as tx:
            return bool(tx.change(_REVOKE, {"id": column(token_id)}))

    def used(self, token_ids: Collection[str]) -> None:
        """Remember that tokens were used."""
        with self._db.write() as tx:
            tx.many(_USED, [{"id": each} for each in token_ids])

    def add_session(self, hashed: str, token_id: str, lasts_s: float) -> None:
        """Begin a session."""
        with self._db.write() as tx:
            tx.change(_ADD_SESSION, {"hash": hashed, "token": token_id, "lasts_s": lasts_s})

    def end_session(self, hashed: str) -> None:
        """End a session, and forget those that are over."""
        with self._db.write() as tx:
            tx.change(_END_SESSION, {"hash": hashed})

    def forget_sign_ins(self) -> None:
        """Remove the tokens behind sessions of an issuer that are over. That one was revoked is kept."""
        with self._db.write() as tx:
            tx.change(_FORGET_SIGN_INS, {})

    # Users

    def users(self, *, after: str = "", limit: int = 500) -> list[tuple[str, float, bool]]:
        """Name, since when, whether disabled."""
        found = self._db.read(_USERS, {"after": after, "limit": limit})
        return [(row[0], row[1], bool(row[2])) for row in found]

    def works(self, user: str) -> bool:
        """Whether a user is known and not disabled."""
        return bool(self._db.read(_WORKS, {"id": column(user)}))

    def disable(self, user: str, *, disabled: bool) -> bool:
        """Whether there is such a user, whose tokens now work or not."""
        with self._db.write() as tx:
            return bool(tx.change(_DISABLE, {"id": column(user), "disabled": int(disabled)}))

    # Projects

    def projects(self, only: str | None = None, *, after: str = "", limit: int = 500) -> list[Project]:
        """All projects, or the one."""
        return [
            Project(*row) for row in self._db.read(_PROJECTS, {"only": only, "after": after, "limit": limit})
        ]

    def has_project(self, project: str) -> bool:
        """Whether there is such a project."""
        return bool(self._db.read(_PROJECT, {"id": column(project)}))

    def project(self, project: str) -> Project:
        """One project."""
        found = self._db.read(_PROJECT, {"id": column(project)})
        if not found:
            raise NotFoundError(f"there is no project '{project}'")
        return Project(*found[0])

    def put_project(self, project: Project) -> None:
        """Write a project, or change what it may use."""
        params = {
            "id": column(project.id),
            "title": column(project.title),
            "max_runs": project.max_runs,
            "day_usd": project.day_usd,
            "keep_days": project.keep_days,
        }
        with self._db.write() as tx:
            tx.change(_PUT_PROJECT, params)

    def delete_project(self, project: str) -> bool:
        """Remove a project without runs; False when it has some, is the default, or is not there."""
        with self._db.write() as tx:
            return bool(tx.change(_DELETE_PROJECT, {"id": column(project)}))

    def members(self, project: str) -> list[str]:
        """Users who have a token of a project, or may sign in to it."""
        return [str(row[0]) for row in self._db.read(_MEMBERS, {"project": project})]

    def is_member(self, project: str, user: str) -> bool:
        """Whether a user is in a project."""
        return bool(self._db.read(_MEMBER, {"project": project, "user": column(user)}))

    def projects_of(self, user: str) -> list[str]:
        """The projects that a user is a member of."""
        return [str(row[0]) for row in self._db.read(_PROJECTS_OF, {"user": column(user)})]

    def add_member(self, project: str, user: str) -> None:
        """Put a user into a project; the user is made where there is none."""
        with self._db.write() as tx:
            tx.change(_ADD_USER, {"id": column(user)})
            tx.change(_ADD_MEMBER, {"project": project, "user": column(user)})

    def remove_member(self, project: str, user: str) -> bool:
        """Take a user out of a project and revoke their tokens of it; False when they are not in it."""
        named = {"project": column(project), "user": column(user)}
        with self._db.write() as tx:
            tx.change(_REVOKE_OF_MEMBER, named)
            return bool(tx.change(_REMOVE_MEMBER, named))

    def spent_today_usd(self, project: str) -> float:
        """What a project's runs have spent on models today (UTC); open calls at what is held back."""
        now = float(self._db.read(_SECONDS_TODAY)[0][0])
        found = self._db.read(_SPENT, {"project": project, "since_s": now % 86_400})
        return int(found[0][0]) / _NANO


def _token(found: Sequence[Row]) -> Token | None:
    if not found:
        return None
    row = found[0]
    return Token(row[0], row[1], row[2], row[3], tuple(row[4].split()), *row[5:])

"""Who somebody is here and what they may do, by the claims of an ID token, the settings and the members."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.errors import UsageError
from proctor.server.auth.caller import SCOPES
from proctor.server.auth.oidc.id_token import refused
from proctor.server.auth.tokens import MEMBER
from proctor.server.problem import Problem
from proctor.settings import Settings
from proctor.store.store import Store

EVERYBODY = "*"
ALL_PROJECTS = "*"
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_GRANT = re.compile(r"(?P<group>.+)=(?P<project>\*|[a-z0-9][a-z0-9-]*)(?::(?P<scopes>[a-z+]+))?")


@dataclass(frozen=True, slots=True)
class Grant:
    """What members of a group may do in a project."""

    group: str
    project: str
    scopes: tuple[str, ...]


def grants(settings: Settings) -> list[Grant]:
    """The setting `oidc_projects`; UsageError where it cannot be understood."""
    return [_grant(each) for each in settings.oidc_projects]


def _grant(text: str) -> Grant:
    found = _GRANT.fullmatch(text)
    scopes = tuple(found["scopes"].split("+")) if found and found["scopes"] else MEMBER
    if not found or set(scopes) - SCOPES.keys():
        raise UsageError(
            f"oidc_projects: '{text[:100]}' is not GROUP=PROJECT or GROUP=PROJECT:SCOPE+SCOPE; scopes are "
            f"{', '.join(SCOPES)}"
        )
    if (found["project"] == ALL_PROJECTS) != ("admin" in scopes):
        raise UsageError(f"oidc_projects: '{text[:100]}': administrators are of all projects, GROUP=*:admin")
    return Grant(found["group"], found["project"], scopes)


def user_of(claims: Mapping[str, Any], settings: Settings) -> str:
    """The name of whoever signed in; an address of mail counts only when the issuer has verified it."""
    name = claims.get(settings.oidc_user_claim)
    if not isinstance(name, str) or not _USER.fullmatch(name):
        raise refused(f"its '{settings.oidc_user_claim}' is no name that a user can have here")
    if settings.oidc_user_claim == "email" and claims.get("email_verified") is not True:
        raise refused("it has not verified the address of mail")
    return name


def allowed(claims: Mapping[str, Any], settings: Settings, store: Store, project: str | None) -> Grant:
    """What somebody may do in a project: in the named one, or in the first that is theirs."""
    user = user_of(claims, settings)
    found = [*_by_groups(claims, settings), *_by_members(store, user)]
    known = [each for each in found if _exists(store, each.project)]
    chosen = [each for each in known if project in (None, each.project) or each.project == ALL_PROJECTS]
    if not chosen:
        raise Problem("forbidden", f"'{user}' is in no project here; an administrator can add them to one")
    first = chosen[0].project
    scopes = {scope for each in chosen if each.project == first for scope in each.scopes}
    return Grant("", first, tuple(sorted(scopes)))


def _exists(store: Store, project: str) -> bool:
    return project == ALL_PROJECTS or store.service.accounts.has_project(project)


def _by_groups(claims: Mapping[str, Any], settings: Settings) -> Iterator[Grant]:
    given = claims.get(settings.oidc_groups_claim)
    groups = {given} if isinstance(given, str) else set()
    if isinstance(given, list):
        groups = {each for each in given if isinstance(each, str)}
    for each in grants(settings):
        if each.group == EVERYBODY or each.group in groups:
            yield each


def _by_members(store: Store, user: str) -> Iterator[Grant]:
    for project in store.service.accounts.projects_of(user):
        yield Grant("", project, MEMBER)

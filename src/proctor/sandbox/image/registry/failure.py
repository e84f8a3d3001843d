"""Why a registry refused a request, in words that say what to do next."""

from __future__ import annotations

import json

from proctor.errors import ImageError
from proctor.sandbox.image.registry.access import Endpoint
from proctor.sandbox.image.registry.credentials import Found

_LONGEST_DETAIL = 200


class RegistryError(ImageError):
    """A server refused, failed, or could not be reached."""

    def __init__(self, message: str, *, status: int = 0, retry: bool = False, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry = retry
        """Whether asking again may help."""
        self.wait_s = wait_s
        """How long the server asked to wait."""
        self.lasting = status in {401, 403, 404}


def said_by_server(body: bytes, secrets: tuple[str, ...]) -> str:
    """What a server wrote about its refusal, fit to print: short, and without secrets it may repeat."""
    try:
        first = json.loads(body)["errors"][0]
        text = str(first.get("message") or first.get("code") or "")
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    return "".join(each if each.isprintable() else " " for each in text)[:_LONGEST_DETAIL].strip()


def refused(endpoint: Endpoint, status: int, detail: str, found: Found) -> str:
    """One sentence for an answer that is an error."""
    server = f"the mirror {endpoint.host}" if endpoint.is_mirror else endpoint.registry
    name = endpoint.host if endpoint.is_mirror else endpoint.registry
    shown = f" ({detail})" if detail else ""
    login = f"log in with `podman login {name}` or `docker login {name}`"
    source = found.login.source if found.login else ""
    mirror = "set a mirror (setting registry_mirrors)"
    note = f"; {found.note}" if found.note else ""
    if status == 401 and not source:
        return (
            f"{server} wants a login{shown}: the image is private or does not exist there; check the name, "
            f"or {login}{note}"
        )
    who = f"the account from {source}" if source else "anonymous users"
    sentences = {
        401: f"{server} does not accept the credentials from {source}{shown}: {login}",
        403: f"{server} denies access to {who}{shown}: {login} with an account that has access",
        404: f"{server} has no image of that name and tag{shown}: check both, and that it was pushed there",
        429: f"rate limit of {server} reached{shown}: {'wait' if source else login}, or {mirror}",
    }
    return (
        sentences.get(status)
        or f"{server} answered with status {status}{shown}: try again later, or {mirror}"
    )

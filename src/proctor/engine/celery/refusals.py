"""Why a broker does not work: what it said itself, or what its line says. Never its password."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, urlsplit


def why(error: BaseException, broker: str) -> str:
    """What is wrong, for somebody who can change the broker or its address."""
    for each in _causes(error):
        if said := _said(each):
            return f"refuses: {_without_password(said, broker)}"
        if isinstance(each, OSError) and (each.strerror or each.args):
            return f"cannot be reached: {_without_password(each.strerror or str(each), broker)}"
    return f"does not answer ({type(error).__name__})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _said(error: BaseException) -> str:
    """The broker's own words; empty when they are not its own."""
    from redis.exceptions import AuthenticationError, ResponseError

    if isinstance(error, AuthenticationError | ResponseError):
        return str(error)
    return str(getattr(error, "reply_text", None) or "")  # py-amqp's errors


def _without_password(text: str, broker: str) -> str:
    password = urlsplit(broker).password or ""
    for each in {password, unquote(password)} - {""}:
        text = text.replace(each, "***")
    return text.strip().rstrip(".")

"""What counts as a secret, and the reference that is stored in its place: the name of a variable.

A reference is `{secret: NAME}`, or `{secret: "Bearer ${NAME}"}` where the secret is part of a longer text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from proctor.errors import UsageError

KEY = "secret"
"""The only key of a reference."""
OWN_PREFIX = "PROCTOR_"
"""Variables that begin like this belong to Proctor: no spec and no task gets them."""
LITERAL_PREFIX = "SPEC_"
"""How the reference to a value begins that was written in the spec itself."""
SHORTEST = 6
"""A shorter value is in ordinary text too, so it cannot be taken out of it."""
VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>(?:[^}$]++|\$(?!\{))*+))?\}", re.ASCII)
"""`${NAME}` or `${NAME:-default}`; a default holds no variable.

This and the patterns below read texts of strangers, in one call that stops every thread: none may look from
each place of a text at all that follows.
"""
_ESCAPED = re.compile(r"\$\$\{|" + VARIABLE.pattern, re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALWAYS = {
    "password", "passwords", "passwd", "passphrase", "pwd", "secret", "secrets", "credential", "credentials",
    "apikey", "authorization",
}  # fmt: skip
_AT_THE_END = {"key", "token", "keys", "pat"}
_NO_SECRET = {
    "file", "files", "path", "paths", "dir", "folder", "name", "names", "id", "type", "kind", "count",
    "limit", "length", "size", "env", "variable", "enabled", "required", "policy", "min", "max", "provider",
}  # fmt: skip
"""As the last word of a name: it is about a secret, and holds none."""
_ORDINARY = {
    "sort", "primary", "foreign", "cache", "public", "partition", "group", "index", "dict", "object", "row",
    "map", "join", "sample", "search", "lookup", "hash", "shard", "order", "stop", "eos", "bos", "pad", "unk",
    "mask", "sep", "start", "end", "next", "page", "json", "id",
}  # fmt: skip
"""Before `key` or `token`: an ordinary word of programs."""
_WEAK = {"key", "auth"}
"""Alone they mean a secret only if the value looks like one."""
_URL_LOGIN = re.compile(r"(?<=[A-Za-z0-9+.-])://(?P<user>[^/\s:@?#]*)(?::(?P<password>[^/\s@?#]*))?@")
_TOKEN = re.compile(
    r"sk-[\w-]{32,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{35}|hf_\w{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


def looks_secret(name: str, value: str | None = None) -> bool:
    """Whether a name says that its value is secret; `auth` and `key` alone only with a value like a token."""
    words = [each.lower() for each in _WORD.findall(name)]
    while words and words[-1].isdigit():
        words.pop()
    if not words or words[-1] in _NO_SECRET:
        return False
    if _ALWAYS.intersection(words) or "apikey" in "".join(words):
        return True
    if words[-1] in _AT_THE_END and words[-2:-1] and words[-2] not in _ORDINARY:
        return True
    if words == ["token"]:
        return True
    return words[-1] in _WEAK and words[-2:-1] == [] and value is not None and _random(value)


def token_in(text: str) -> int | None:
    """Where a well-known kind of token or a private key begins."""
    found = _TOKEN.search(text)
    return found.start() if found else None


def holds_credential(text: str) -> bool:
    """Whether a text is a well-known kind of token or private key, or an address with a password."""
    return bool(_TOKEN.search(text)) or any(each["password"] for each in _URL_LOGIN.finditer(text))


def credentials_in(text: str) -> list[str]:
    """The passwords of the addresses in a text; a user name of HTTP without one is the token itself.

    That of a database or a broker is a name, such as `proctor`, which ordinary text has too.
    """
    found = [
        each["password"] or (each["user"] if _is_http(text, each.start()) else "")
        for each in _URL_LOGIN.finditer(text)
    ]
    return [each for each in found if len(each) >= SHORTEST]


def _is_http(text: str, end: int) -> bool:
    return text[max(0, end - len("https")) : end].lower().endswith(("http", "https"))


def _random(value: str) -> bool:
    mixed = any(each.isdigit() for each in value) and any(each.isalpha() for each in value)
    return not any(each.isspace() for each in value) and ((len(value) >= 8 and mixed) or len(value) >= 20)


def is_reference(value: Any) -> bool:
    """Whether a value stands for a secret."""
    return isinstance(value, Mapping) and value.keys() == {KEY} and isinstance(value[KEY], str)


def wrong_reference(text: str) -> str:
    """What is wrong with the text behind `secret:`; empty when nothing is."""
    if _NAME.fullmatch(text) or VARIABLE.search(text):
        return ""
    return "'secret' takes the name of an environment variable, or a text with ${NAME} in it"


def names_of(reference: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """The variables that a reference needs, each with whether it has a default."""
    text = reference[KEY]
    if _NAME.fullmatch(text):
        yield text, False
        return
    for each in _ESCAPED.finditer(text):
        if each["name"]:
            yield each["name"], each["default"] is not None


def references_in(value: Any) -> Iterator[Mapping[str, str]]:
    """Every reference in plain data."""
    if value is None or isinstance(value, str | int | float):
        return
    if is_reference(value):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from references_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from references_in(each)


def resolved(value: Any, given: Mapping[str, str]) -> Any:
    """Plain data with secrets in place of their references; UsageError for one that is not set."""
    return _mapped(value, lambda reference: _value(reference, given))


def without_values(value: Any) -> Any:
    """Plain data with a text that names the secret in place of each reference."""
    return _mapped(value, _named)


def shown(value: Any) -> Any:
    """A value as people see it: of a secret its name."""
    return _named(value) if is_reference(value) else value


def _named(reference: Mapping[str, str]) -> str:
    return f"secret:{reference[KEY]}"


def _mapped(value: Any, change: Callable[[Mapping[str, str]], str]) -> Any:
    if is_reference(value):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(each, change) for each in value]
    return value


def _value(reference: Mapping[str, str], given: Mapping[str, str]) -> str:
    text = reference[KEY]
    return filled(f"${{{text}}}" if _NAME.fullmatch(text) else text, given)


def filled(text: str, given: Mapping[str, str]) -> str:
    """A text with its variables filled in; `$${` is a literal `${`."""

    def one(match: re.Match[str]) -> str:
        if match["name"] is None:
            return "${"
        if match["name"] in given:
            return given[match["name"]]
        if match["default"] is not None:
            return match["default"]
        raise UsageError(f"${{{match['name']}}} is not set: {how_to_set(match['name'])}")

    return _ESCAPED.sub(one, text)


def how_to_set(name: str) -> str:
    """What to do about a secret that is not there."""
    if name.startswith(LITERAL_PREFIX):
        key = name.removeprefix(LITERAL_PREFIX).lower()
        return (
            f"the spec held this value itself, under '{key}', and such values are not stored; "
            f"set the environment variable {name} to it"
        )
    return f"set the environment variable {name}, or give a default as ${{{name}:-default}}"

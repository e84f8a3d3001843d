"""Fill in `${VAR}` in a spec, and put references in the place of secrets, so that no value of one is stored.

Variables come in as an argument. In `agent_options`, `environment_variables`, `params`, `sweep` and inline
`overrides` a secret becomes a reference; elsewhere a secret is refused, but for the address of a dataset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from proctor.model.secret import (
    KEY,
    LITERAL_PREFIX,
    OWN_PREFIX,
    SHORTEST,
    VARIABLE,
    holds_credential,
    looks_secret,
    wrong_reference,
)
from proctor.spec.node import Node

PLACES = frozenset({"agent_options", "environment_variables", "params", "sweep", "overrides"})
"""Keys below which a value may be secret."""
_VERBATIM = frozenset({"notes", "command", "install", "$schema", "pass_env"})
"""Keys whose text is left as it is: people's words, and an agent's own templates."""
_SOURCES = frozenset({"path", "dataset", "zip", "prepared_dir"})
_ESCAPED = re.compile(r"\$\$\{|" + VARIABLE.pattern, re.ASCII)
_PLAIN = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false")


class VariableFiller:
    """One spec while its variables are filled in."""

    def __init__(self, environ: Mapping[str, str], granted: Iterable[str]) -> None:
        self.environ = environ
        self.granted = frozenset(granted)
        self.literals: dict[str, str] = {}
        """Reference → the value that was written in the spec."""

    def fill(self, root: Node) -> None:
        """In place."""
        for key, item in root.value.items() if isinstance(root.value, dict) else ():
            if key in {"tasks", "experiments"} and isinstance(item.value, list):
                for entry in item.value:
                    self._entry(entry)
            else:
                self._item(item, key, secret_place=key in PLACES)

    def _entry(self, entry: Node) -> None:
        for key, item in entry.value.items() if isinstance(entry.value, dict) else ():
            self._item(item, key, secret_place=key in PLACES)

    def _item(self, node: Node, key: str, *, secret_place: bool) -> None:
        if key in _VERBATIM:
            return
        if isinstance(node.value, str):
            self._text(node, key, secret_place=secret_place)
        elif isinstance(node.value, list):
            for each in node.value:
                self._item(each, key, secret_place=secret_place)
        elif isinstance(node.value, dict):
            if secret_place and node.value.keys() == {KEY} and key not in PLACES:
                self._reference(node.value[KEY])
                return
            for inner, each in node.value.items():
                self._item(each, inner, secret_place=secret_place)

    def _reference(self, node: Node) -> None:
        """Written as `{secret: NAME}` by the person."""
        if not isinstance(node.value, str) or (problem := wrong_reference(node.value)):
            raise node.mark.error(
                problem if isinstance(node.value, str) else wrong_reference("") + ", not a list or a number"
            )
        names = [each["name"] for each in VARIABLE.finditer(node.value)] or [node.value]
        for name in names:
            _refuse_own(node, name)

    def _text(self, node: Node, key: str, *, secret_place: bool) -> None:
        text = node.value
        if "${" not in text:
            if secret_place and text and (looks_secret(key, text) or holds_credential(text)):
                _replace(node, self._literal(key, text))
            return
        names = [each["name"] for each in _ESCAPED.finditer(text) if each["name"]]
        secret = [name for name in names if self._is_secret(name, key if secret_place else "")]
        for name in names:
            _refuse_own(node, name)
        if not secret or key in _SOURCES:
            node.value = self._filled(node, text, ())
            if names and VARIABLE.fullmatch(text) and _PLAIN.fullmatch(node.value):
                _typed(node)
        elif secret_place:
            whole = VARIABLE.fullmatch(text)
            bare = whole and whole["default"] is None
            _replace(node, secret[0] if bare else self._filled(node, text, secret))
        else:
            raise node.mark.error(
                f"'{key}': ${{{secret[0]}}} looks secret, and this value is stored; "
                f"secrets can be used in {', '.join(sorted(PLACES))}"
            )

    def _is_secret(self, name: str, key: str) -> bool:
        value = self.environ.get(name, "")
        return (
            name in self.granted
            or looks_secret(name, value)
            or looks_secret(key, value)
            or holds_credential(value)
        )

    def _filled(self, node: Node, text: str, kept: Iterable[str]) -> str:
        """The text with variables filled in; those to keep stay, because the text is filled again later."""

        def one(match: re.Match[str]) -> str:
            name = match["name"]
            if name is None:
                return "$${" if kept else "${"
            if name in kept:
                return match[0]
            value = self.environ.get(name, match["default"])
            if value is None:
                raise node.mark.error(
                    f"${{{name}}} is not set in the environment: set it, give a default as "
                    f"${{{name}:-default}}, or write $${{{name}}} for the text itself"
                )
            return value.replace("${", "$${") if kept else value

        return _ESCAPED.sub(one, text)

    def _literal(self, key: str, value: str) -> str:
        """A name for a secret that is written in the spec itself."""
        for name, known in self.literals.items():
            if known == value:
                return name
        stem = LITERAL_PREFIX + (re.sub(r"\W+", "_", key, flags=re.ASCII).strip("_").upper() or "VALUE")
        name, number = stem, 1
        while name in self.literals:
            number += 1
            name = f"{stem}_{number}"
        self.literals[name] = value
        return name


def _replace(node: Node, reference: str) -> None:
    node.value = {KEY: Node(reference, node.mark, node.key_mark)}
    node.text = None


def _typed(node: Node) -> None:
    """A number or truth value that came from a variable, as it would be without quotes."""
    import json

    node.text = node.value
    node.value = json.loads(node.value)


def _refuse_own(node: Node, name: str) -> None:
    if name.startswith(OWN_PREFIX):
        raise node.mark.error(f"{name} is a setting of Proctor's own, which no spec can use")


def granted_names(root: Node) -> list[str]:
    """What `pass_env` lists, before it is checked."""
    found = root.value.get("pass_env") if isinstance(root.value, dict) else None
    if found is None:
        return []
    listed = found.value if isinstance(found.value, list) else [found]
    return [each.value for each in listed if isinstance(each.value, str)]


def concealed(overrides: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Overrides of a file with references in place of secret variables, and the secrets."""
    found: dict[str, str] = {}

    def without(table: Any) -> Any:
        if not isinstance(table, Mapping):
            return table
        secret = {
            name: f"{LITERAL_PREFIX}{name}"
            for name, value in table.items()
            if isinstance(value, str) and value and (looks_secret(name, value) or holds_credential(value))
        }
        found.update({secret[name]: str(table[name]) for name in secret})
        return {name: {KEY: secret[name]} if name in secret else value for name, value in table.items()}

    data = dict(overrides)
    if "environment_variables" in data:
        data["environment_variables"] = without(data["environment_variables"])
    evaluation = data.get("evaluation")
    if isinstance(evaluation, Mapping) and "environment_variables" in evaluation:
        data["evaluation"] = {
            **evaluation,
            "environment_variables": without(evaluation["environment_variables"]),
        }
    return data, found


def hidden(data: Any, literals: Mapping[str, str]) -> Any:
    """Plain data in which every value that a spec held as a secret is a reference."""
    if isinstance(data, Mapping):
        return {key: hidden(each, literals) for key, each in data.items()}
    if isinstance(data, list | tuple):
        return [hidden(each, literals) for each in data]
    if isinstance(data, str):
        for name, value in literals.items():
            if data == value:
                return {KEY: name}
            if len(value) >= SHORTEST:
                data = data.replace(value, f"[redacted:{name}]")
    return data

"""Rules as data, and the lists of them that specs and rule files hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from proctor.analysis.clock import CPU, WALL
from proctor.errors import SpecError, UsageError
from proctor.spec.node import Node, found, from_plain, nearest

Operator = Literal["<=", "<", ">=", ">", "==", "!="]

TIME = "time"
"""What a rule judges by the clock that leads for run and baseline together; see `analysis/clock.py`."""
MAX_RULES = 200
_SET_KEYS = ("rules", "baseline")
_RULE_KEYS = ("rule", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Where a rule comes from."""

    text: str
    """As the person wrote it."""
    name: str = ""
    """What it is called in reports; its text when it has no name."""
    file: str = ""
    line: int | None = None

    @property
    def title(self) -> str:
        """The name for people."""
        return self.name or self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class OfBaseline:
    """A limit that is the baseline's own value, plus or minus something."""

    add: float = 0.0
    factor: float = 1.0

    def limit(self, value: float) -> float:
        """The limit, given the baseline's value."""
        return value * self.factor + self.add


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A field against a limit; nothing is estimated."""

    written: Written
    path: str
    operator: Operator
    limit: float | str | bool | OfBaseline
    arm: str = ""
    """Whose score or pass rate; empty: every arm must keep the limit."""

    @property
    def is_score(self) -> bool:
        """Whether it is about a score or a pass rate, of which every arm of a run has its own."""
        return self.path.partition(".")[0] in {"score", "pass_rate"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """Which failure reasons may occur."""

    written: Written
    allowed: tuple[str, ...] | None
    """None: those that the baseline has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotWorse:
    """A metric against the baseline's, with the noise of both."""

    written: Written
    metric: str
    statistic: str
    """p50, p95, mean …; empty: what suits the metric"""
    higher_is_worse: bool
    margin: float
    """A fraction: of the baseline's value, or for scores of the whole scale (3pp is 0.03)."""
    level: float = 0.95
    arm: str = ""
    """Whose; empty: every arm's, one test for each."""
    these_tasks: bool | None = None
    """Whether the claim is about these tasks only; None: the widest that the number of tasks can judge."""

    @property
    def is_score(self) -> bool:
        """Whether it is about rewards, which differ in percentage points, or about a ratio."""
        return self.metric in {"reward", "pass_rate"}


Rule = Threshold | Reasons | NotWorse


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """All rules of one gate."""

    rules: tuple[Rule, ...]
    baseline: str = ""
    """The baseline that is used when the command names none."""

    @property
    def needs_baseline(self) -> bool:
        """Whether a rule refers to a baseline."""
        return any(needs_baseline(rule) for rule in self.rules)

    @property
    def speaks_of_failures(self) -> bool:
        """Whether a rule says how many trials may fail, or how."""
        fields = ("failure_", "success_", "outcomes", "blame", "score", "pass_rate", "summary", "trials")
        return any(
            isinstance(rule, Reasons)
            or (isinstance(rule, NotWorse) and rule.is_score)
            or (isinstance(rule, Threshold) and rule.path.startswith(fields))
            for rule in self.rules
        )

    def on_clock(self, metric: str) -> RuleSet:
        """The same rules, with those about time on this clock."""
        return replace(
            self,
            rules=tuple(
                replace(rule, metric=metric) if isinstance(rule, NotWorse) and rule.metric == TIME else rule
                for rule in self.rules
            ),
        )

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics whose single values the rules need."""
        names: list[str] = []
        for rule in self.rules:
            if isinstance(rule, NotWorse) and not rule.is_score:
                names += [WALL, CPU] if rule.metric == TIME else [rule.metric]
        for rule in self.rules:
            if isinstance(rule, Threshold):
                names += _metrics_of(rule.path)
        return tuple(dict.fromkeys(names))


def needs_baseline(rule: Rule) -> bool:
    """Whether a rule cannot be judged on a run alone."""
    if isinstance(rule, Threshold):
        return isinstance(rule.limit, OfBaseline)
    return isinstance(rule, NotWorse) or rule.allowed is None


def metric_and_statistic(path: str) -> tuple[str, str]:
    """`metrics.duration_s.p95` is the p95 of duration_s."""
    metric, dot, statistic = path.removeprefix("metrics.").rpartition(".")
    return (metric, statistic) if dot else (statistic, "p50")


def _metrics_of(path: str) -> list[str]:
    whole = path.removeprefix("metrics.")
    return list(dict.fromkeys((metric_and_statistic(path)[0], whole))) if path.startswith("metrics.") else []


def load_rules(path: Path) -> RuleSet:
    """Rules from a YAML, TOML or JSON file: a list of them, or a mapping with `rules` and `baseline`."""
    from proctor.spec.load import parse

    root = parse(path)
    return _rule_set([root] if not isinstance(root.value, list) else root.value, root)


def read_rules(gates: Sequence[Any], *, file: str = "") -> RuleSet:
    """Rules from the `gates` of a spec that has been read already."""
    root = from_plain(list(gates), file=file, path=("gates",))
    return _rule_set(root.value, root)


def _rule_set(items: Sequence[Node], root: Node) -> RuleSet:
    from proctor.verdicts.gate.grammar import parse_rule

    baseline = ""
    rules: list[Rule] = []
    for node, name, named_baseline in _sentences(items):
        if named_baseline:
            if baseline and baseline != named_baseline:
                raise node.place.error(f"the baseline is already '{baseline}'; a gate can have only one")
            baseline = named_baseline
            continue
        rules.append(parse_rule(str(node.value), name=name, mark=node.mark))
        if len(rules) > MAX_RULES:
            raise node.mark.error(f"more than {MAX_RULES} rules")
    if not rules:
        raise root.mark.error("there are no rules here; a rule is a line such as 'failure_count == 0'")
    return RuleSet(rules=tuple(rules), baseline=baseline)


def _sentences(items: Sequence[Node]) -> Iterator[tuple[Node, str, str]]:
    """Each rule's text with its name, and the baseline where one is named."""
    for item in items:
        if isinstance(item.value, str):
            yield item, "", ""
        elif isinstance(item.value, dict):
            yield from _mapping(item)
        else:
            raise item.mark.error(f"expected a rule such as 'failure_count == 0', found {found(item.value)}")


def _mapping(item: Node) -> Iterator[tuple[Node, str, str]]:
    for key, inner in item.value.items():
        if key not in (*_SET_KEYS, *_RULE_KEYS):
            raise inner.place.error(f"'{key}' is not a key here{nearest(key, (*_SET_KEYS, *_RULE_KEYS))}")
    if "rule" in item.value:
        name = item.value.get("name")
        yield _text(item.value["rule"], "a rule"), _text(name, "a name").value if name else "", ""
    if "baseline" in item.value:
        node = _text(item.value["baseline"], "the name of a baseline or a run")
        yield node, "", node.value
    if "rules" in item.value:
        inside = item.value["rules"]
        yield from _sentences(inside.value if isinstance(inside.value, list) else [inside])


def _text(node: Node, what: str) -> Node:
    if not isinstance(node.value, str) or not node.value.strip():
        raise node.mark.error(f"expected {what}, found {found(node.value)}")
    return node


def refuse(written: Written, message: str) -> UsageError:
    """What is wrong with a rule, at its place."""
    return SpecError(f"rule '{written.text[:200]}': {message}", file=written.file, line=written.line)

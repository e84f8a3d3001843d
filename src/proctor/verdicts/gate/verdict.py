"""The result of a gate: a verdict for each rule, and one for all of them by a fixed precedence.

`to_dict` is `gate.json`, and what `proctor gate --json` prints. Additions only, once published.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from proctor.errors import Exit
from proctor.model.canonical import finite
from proctor.verdicts.gate.rules import Written

SCHEMA_VERSION = 1


class GateVerdict(StrEnum):
    """The verdict of a rule, or of a whole gate."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"
    """The data is not enough; the result says what would be."""
    INFRASTRUCTURE = "infrastructure"
    """Machines or providers failed, so the subject was not judged."""


PRECEDENCE = (
    GateVerdict.REGRESSION,
    GateVerdict.INFRASTRUCTURE,
    GateVerdict.INCONCLUSIVE,
    GateVerdict.PASS,
)
"""The gate's verdict is the first of these that any rule has. What is proven comes first,
then what must be fixed before anything can be judged; then doubt. A gate passes when every rule does."""

EXIT_CODES = {
    GateVerdict.PASS: Exit.OK,
    GateVerdict.REGRESSION: Exit.WORSE,
    GateVerdict.INCONCLUSIVE: Exit.INCONCLUSIVE,
    GateVerdict.INFRASTRUCTURE: Exit.INFRASTRUCTURE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its interval, in the unit that it is shown in."""

    value: float
    low: float | None = None
    high: float | None = None
    level: float | None = None
    unit: str = ""
    """pp, ratio, or a metric's name"""
    claim: str = ""
    """What the interval is about: tasks like these, these tasks, the runs of this code."""
    arm: str = ""
    """Whose, where it is of an arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """One rule, judged."""

    written: Written
    verdict: GateVerdict
    sentence: str
    """What was tested and the result, in full."""
    n: str = ""
    """How much data was used."""
    estimate: Estimate | None = None
    margin: str = ""
    change: str = ""
    """What would change the verdict, including the smallest detectable effect."""
    detectable: float | None = None
    """The smallest loss that would be detected with 80 % probability; a fraction."""
    p_value: float | None = None
    """After Holm over all comparisons of the gate."""
    details: tuple[str, ...] = ()
    """Points or reasons that decided, the worst first."""
    tolerated: float | None = None
    """The margin of a statistical rule as a fraction, for its picture."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        written = self.written
        return {
            "rule": written.text,
            "name": written.title,
            "place": f"{written.file}:{written.line}" if written.file and written.line else None,
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "n": self.n or None,
            "estimate": asdict(self.estimate) if self.estimate else None,
            "margin": self.margin or None,
            "p_holm": self.p_value,
            "detectable": self.detectable,
            "what_would_change_it": self.change or None,
            "details": list(self.details),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """All rules of a gate on one run."""

    results: tuple[RuleResult, ...]
    label: str
    run_id: str = ""
    digest: str = ""
    baseline: str = ""
    """The baseline in words; empty when there is none."""
    baseline_facts: dict[str, Any] = field(default_factory=dict)
    comparisons: int = 0
    """How many p-values Holm's correction was over."""
    warnings: tuple[str, ...] = ()

    @property
    def verdict(self) -> GateVerdict:
        """The gate's verdict."""
        return overall(each.verdict for each in self.results)

    @property
    def exit_code(self) -> Exit:
        """0 pass, 1 regression, 3 inconclusive, 4 infrastructure."""
        return EXIT_CODES[self.verdict]

    def of(self, verdict: GateVerdict) -> list[RuleResult]:
        """The rules with this verdict."""
        return [each for each in self.results if each.verdict is verdict]

    @property
    def sentence(self) -> str:
        """The verdict for a person, in one sentence."""
        verdict, count = self.verdict, len(self.results)
        if verdict is GateVerdict.PASS:
            return f"Pass: {'the rule holds' if count == 1 else f'all {count} rules hold'}."
        hits = self.of(verdict)
        more = f" ({len(hits)} of {count} rules)" if count > 1 else ""
        return f"{verdict.value.capitalize()}{more}: {hits[0].sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data; what is not finite becomes null, so that any JSON parser reads it."""
        plain: dict[str, Any] = finite(
            {
                "schema_version": SCHEMA_VERSION,
                "verdict": self.verdict.value,
                "exit_code": int(self.exit_code),
                "sentence": self.sentence,
                "run": self.label,
                "run_id": self.run_id,
                "digest": self.digest,
                "baseline": self.baseline or None,
                "baseline_facts": self.baseline_facts,
                "comparisons": self.comparisons,
                "correction": "Holm over all comparisons with the baseline",
                "precedence": [each.value for each in PRECEDENCE],
                "warnings": list(self.warnings),
                "rules": [each.to_dict() for each in self.results],
            }
        )
        return plain


def overall(verdicts: Iterable[GateVerdict]) -> GateVerdict:
    """One verdict over many, by PRECEDENCE; no verdicts are inconclusive."""
    found = set(verdicts)
    return next((each for each in PRECEDENCE if each in found), GateVerdict.INCONCLUSIVE)

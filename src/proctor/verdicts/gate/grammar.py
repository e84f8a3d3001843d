"""From a sentence to a rule. Small and strict: an unexpected word is an error that names a likely one.

max_wall_clock_s <= 15                                      a threshold
failure_reasons in [agent_timeout, failed]                  allowed failure reasons
score not worse than baseline by more than 3pp at 95%       a statistical rule
score of terminal/large >= 0.6                              of one arm of several
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from proctor.model.direction import Direction, direction_of
from proctor.spec.node import NOWHERE, Mark, nearest
from proctor.verdicts.gate.rules import (
    TIME,
    NotWorse,
    OfBaseline,
    Operator,
    Reasons,
    Rule,
    Threshold,
    Written,
    refuse,
)

MAX_LENGTH = 500
METRICS = {
    "score": "reward",
    "reward": "reward",
    "pass rate": "pass_rate",
    "time": TIME,
    "latency": "duration_s",
    "duration": "duration_s",
    "wall clock": "duration_s",
    "cpu time": "cpu_s",
    "cost": "cost_usd",
    "memory": "peak_memory_bytes",
    "peak memory": "peak_memory_bytes",
}
"""What people call a metric → its name in the records."""
STATISTICS = {"median": "p50", "mean": "mean", "average": "mean"} | {
    f"p{each}": f"p{each}" for each in (50, 75, 90, 95, 99)
}
_HIGHER_IS_WORSE = ("larger", "higher", "bigger", "more", "costlier")
_LOWER_IS_WORSE = ("smaller", "lower", "fewer", "less")
_WORSE = ("worse", "slower", *_HIGHER_IS_WORSE, *_LOWER_IS_WORSE)
_OPERATORS: tuple[Operator, ...] = ("<=", "<", ">=", ">", "==", "!=")
_UNITS: dict[str, dict[str, float]] = {
    "_s": {"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60, "h": 3600},
    "_bytes": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    "_usd": {"USD": 1, "usd": 1, "$": 1},
}
_TOKEN = re.compile(
    r"(?P<number>[-+]?\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)|(?P<operator><=|>=|==|!=|[<>=])"
    r"|(?P<mark>[\[\],%$+-])|(?P<quoted>\"[^\"]*\"|'[^']*')|(?P<word>[^\W\d][\w./:-]*)"
)


class Token(NamedTuple):
    """A word, a number, an operator or a mark."""

    kind: str
    text: str


def parse_rule(text: str, *, name: str = "", mark: Mark = NOWHERE) -> Rule:
    """One sentence to one rule; SpecError at its place when it is not one."""
    shown = " ".join(text.split())
    written = Written(text=shown, name=name, file=mark.file, line=mark.line)
    return _Sentence(written).rule()


class _Sentence:
    """The words of one rule, read from left to right."""

    def __init__(self, written: Written) -> None:
        self.written = written
        if len(written.text) > MAX_LENGTH:
            raise refuse(written, f"longer than {MAX_LENGTH} characters")
        self.tokens = self._split(written.text)
        self.at = 0

    def _split(self, text: str) -> list[Token]:
        tokens, at = [], 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            found = _TOKEN.match(text, at)
            if found is None:
                raise refuse(self.written, f"{text[at]!r} is not allowed here")
            assert found.lastgroup is not None
            tokens.append(Token(found.lastgroup, found[0]))
            at = found.end()
        return tokens

    def rule(self) -> Rule:
        """What kind of sentence it is, and its parts."""
        words = [token.text.lower() for token in self.tokens]
        if words[:1] == ["no"]:
            return self._no_new_reasons()
        if words[:2] == ["failure_reasons", "in"] or words[:3] == ["failure", "reasons", "in"]:
            return self._reasons(words.index("in") + 1)
        for at, token in enumerate(self.tokens):
            if token.kind == "operator":
                return self._threshold(at)
            if token.kind == "word" and token.text.lower() == "not":
                return self._not_worse(at)
        hint = (
            "a rule is a threshold ('failure_count == 0'), failure reasons ('no new failure reasons') "
            "or a comparison ('score not worse than baseline by more than 3pp')"
        )
        near = nearest(words[0], ("no", *METRICS)) if words else ""
        raise refuse(self.written, f"not understood{near if 'did you mean' in near else ''}; {hint}")

    def _no_new_reasons(self) -> Rule:
        self.at = 1
        for expected in (("new",), ("failure",), ("reasons", "reason")):
            self._expect(expected)
        self._end()
        return Reasons(written=self.written, allowed=None)

    def _reasons(self, start: int) -> Rule:
        self.at = start
        self._expect(("[",))
        allowed: list[str] = []
        while not self._take("]"):
            if allowed:
                self._expect((",",))
            token = self._next("a failure reason")
            if token.kind not in {"word", "quoted"}:
                self._wrong(token, "a failure reason")
            allowed.append(token.text.strip("\"'"))
        self._end()
        return Reasons(written=self.written, allowed=tuple(allowed))

    def _threshold(self, operator_at: int) -> Rule:
        operator = self.tokens[operator_at].text
        if operator not in _OPERATORS:
            raise refuse(self.written, "'=' is not an operator; equality is '=='")
        subject, arm = self._arm(self.tokens[:operator_at])
        path = self._path(subject)
        self.at = operator_at + 1
        limit = self._limit(path)
        self._end()
        if isinstance(limit, bool | str) and operator not in {"==", "!="}:
            raise refuse(self.written, f"'{operator}' needs a number; a word can only be == or !=")
        rule = Threshold(written=self.written, path=path, operator=operator, limit=limit, arm=arm)
        if arm and not rule.is_score:
            raise refuse(self.written, f"'of {arm}': only a score or a pass rate belongs to an arm")
        return rule

    def _arm(self, tokens: list[Token]) -> tuple[list[Token], str]:
        """What is judged, and the arm behind `of` where one is named."""
        at = next((at for at, token in enumerate(tokens) if token == Token("word", "of")), None)
        if at is None:
            return tokens, ""
        name = tokens[at + 1 :]
        if len(name) != 1 or name[0].kind not in {"word", "quoted"}:
            self._refuse("'of' is followed by one arm: 'score of terminal/large'; quote a name with spaces")
        return tokens[:at], name[0].text.strip("\"'")

    def _path(self, tokens: list[Token]) -> str:
        if len(tokens) == 1 and tokens[0].kind == "word" and tokens[0].text.lower() not in METRICS:
            return tokens[0].text
        metric, statistic = self._metric(tokens)
        if metric == TIME:
            self._refuse("a limit needs one clock: 'duration' or 'cpu time'; 'time' is for 'not slower than'")
        if not statistic and metric in {"reward", "pass_rate", "cost_usd", "peak_memory_bytes"}:
            return "score" if metric == "reward" else metric
        return f"metrics.{metric}.{statistic or 'p50'}"

    def _limit(self, path: str) -> float | str | bool | OfBaseline:
        token = self._next("a number")
        dollars = token.text == "$"
        if dollars:
            token = self._next("a number")
        if token.kind == "number":
            return float(token.text.replace("_", "")) * self._unit(path, dollars=dollars)
        if token.kind == "quoted":
            return token.text[1:-1]
        if token.kind != "word":
            self._wrong(token, "a number")
        word = token.text.lower()
        if word == "baseline":
            return self._of_baseline(path)
        return word == "true" if word in {"true", "false"} else token.text

    def _of_baseline(self, path: str) -> OfBaseline:
        if self.at == len(self.tokens):
            return OfBaseline()
        token = self._next("+ or -")
        sign = {"+": 1.0, "-": -1.0}.get(token.text[0])
        if sign is None:
            self._wrong(token, "+ or -")
        amount = token if token.kind == "number" else self._next("a number")
        if amount.kind != "number":
            self._wrong(amount, "a number")
        value = abs(float(amount.text.replace("_", "")))
        if self._take("%"):
            return OfBaseline(factor=1 + sign * value / 100)
        return OfBaseline(add=sign * value * self._unit(path, dollars=False))

    def _unit(self, path: str, *, dollars: bool) -> float:
        if self._take("%"):
            return 0.01
        known = next((units for suffix, units in _UNITS.items() if self._field(path).endswith(suffix)), {})
        if dollars:
            return 1.0 if "$" in known else self._refuse(f"'{path}' is not in dollars")
        if self.at == len(self.tokens):
            return 1.0
        token = self._next("a unit")
        if token.text not in known:
            what = f"a unit of '{path}'" if known else f"nothing more: '{path}' has no unit"
            self._wrong(token, what, known)
        return known[token.text]

    @staticmethod
    def _field(path: str) -> str:
        parts = path.split(".")
        return next(
            (part for part in reversed(parts) if part not in {*STATISTICS, "min", "max", "std"}), path
        )

    def _not_worse(self, not_at: int) -> Rule:
        subject, arm = self._arm(self.tokens[:not_at])
        metric, statistic = self._metric(subject)
        self.at = not_at + 1
        word = self._expect(_WORSE)
        if word == "more":
            self._take("expensive")
        self._expect(("than",))
        if self._take("baseline") or self._take("the"):
            self._take("baseline")
            if self.at == len(self.tokens):
                self._refuse("say how much is tolerated, for example 'by more than 3pp' or 'by more than 5%'")
            for expected in ("by", "more", "than"):
                self._expect((expected,))
        margin = self._margin(metric)
        level, these = self._level(), self._claim(metric)
        self._end()
        higher = self._direction(metric, word)
        return NotWorse(
            written=self.written,
            metric=metric,
            statistic=statistic,
            higher_is_worse=higher,
            margin=margin,
            level=level,
            these_tasks=these,
            arm=arm,
        )

    def _metric(self, tokens: list[Token]) -> tuple[str, str]:
        if not tokens or any(token.kind != "word" for token in tokens):
            self._refuse(
                "a rule starts with what it judges: 'score', 'p95 latency', 'cost_usd', a metric's name"
            )
        words = [token.text for token in tokens]
        statistic = ""
        if words[0].lower() in STATISTICS and len(words) > 1:
            statistic = STATISTICS[words.pop(0).lower()]
        phrase = " ".join(words).lower()
        if phrase in METRICS:
            return METRICS[phrase], statistic
        if len(words) > 1:
            self._refuse(f"'{' '.join(words)}' is not a metric{nearest(phrase, METRICS)}")
        name = words[0].removeprefix("metrics.")
        metric, dot, last = name.rpartition(".")
        if dot and not statistic and last in STATISTICS:
            return metric, STATISTICS[last]
        if not re.search(r"[_.\d]", name) and "did you mean" in nearest(phrase, (*METRICS, *STATISTICS)):
            self._refuse(f"'{name}' is not a metric{nearest(phrase, (*METRICS, *STATISTICS))}")
        return name, statistic

    def _margin(self, metric: str) -> float:
        token = self._next("how much, for example 5%")
        if token.kind != "number" or token.text.startswith("-"):
            self._wrong(token, "how much, for example 3pp or 5%", ("baseline",))
        value = float(token.text.replace("_", "")) / 100
        unit = self._next("'pp' or '%'").text.lower()
        if unit == "percentage":
            self._expect(("points",))
            unit = "pp"
        score = metric in {"reward", "pass_rate"}
        if score and unit != "pp":
            self._refuse(f"scores differ in percentage points: write '{token.text}pp'")
        if not score and unit != "%":
            self._refuse(f"'{metric}' is compared as a ratio: write '{token.text}%'")
        if not 0 <= value <= (1 if score else 10):
            self._refuse(f"a margin of {token.text}{unit} is out of range")
        return value

    def _level(self) -> float:
        if not self._take("at"):
            return 0.95
        token = self._next("a level such as 95%")
        if token.kind != "number":
            self._wrong(token, "a level such as 95%")
        self._expect(("%",))
        value = float(token.text.replace("_", "")) / 100
        if not 0.5 < value < 1:
            self._refuse(f"a level of {token.text}% is out of range; 95% is usual")
        return value

    def _claim(self, metric: str) -> bool | None:
        if not self._take("for"):
            return None
        if metric not in {"reward", "pass_rate"}:
            self._refuse(f"the claim can be chosen for scores only, not for '{metric}': remove 'for …'")
        if self._expect(("these", "tasks")) == "these":
            self._expect(("tasks",))
            return True
        self._expect(("like",))
        self._expect(("these",))
        return False

    def _direction(self, metric: str, word: str) -> bool:
        from proctor.verdicts.compare.judge import is_time

        if metric == TIME:
            return True if word in {"worse", "slower"} else word in _HIGHER_IS_WORSE
        if word == "slower" and not is_time(metric):
            self._refuse(f"'{metric}' is not a time; say 'not larger than' or 'not lower than'")
        if word in {"worse", "slower"}:
            known = direction_of(metric)
            if known is None:
                self._refuse(
                    f"nothing says whether more of '{metric}' is better or worse; say 'not higher than' or "
                    "'not lower than'"
                )
            return known is Direction.LOWER
        return word in _HIGHER_IS_WORSE

    def _next(self, what: str) -> Token:
        if self.at >= len(self.tokens):
            self._refuse(f"the rule ends where {what} is expected")
        self.at += 1
        return self.tokens[self.at - 1]

    def _take(self, text: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at].text.lower() == text:
            self.at += 1
            return True
        return False

    def _expect(self, words: tuple[str, ...]) -> str:
        shown = " or ".join(f"'{word}'" for word in words[:3])
        token = self._next(shown)
        if token.text.lower() not in words:
            self._wrong(token, shown, words)
        return token.text.lower()

    def _end(self) -> None:
        if self.at < len(self.tokens):
            rest = ("at", "for", "by") if self.at else ()
            self._wrong(self.tokens[self.at], "the end", rest)

    def _wrong(self, token: Token, expected: str, words: Iterable[str] = ()) -> NoReturn:
        near = nearest(token.text.lower(), words) if words else ""
        hint = near if "did you mean" in near else ""
        self._refuse(f"found '{token.text}' where {expected} is expected{hint}")

    def _refuse(self, message: str) -> NoReturn:
        raise refuse(self.written, message)

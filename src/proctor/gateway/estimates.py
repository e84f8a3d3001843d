"""How long an answer will probably be: as the longest of this run's recent ones of the same model.

Models may write far more than they do. What is held back for a call is this estimate, not the most that it
may use; what it uses above it is the overdraft that `budget.py` bounds.
"""

from __future__ import annotations

FIRST_ANSWER = 2048
"""Tokens to expect before anything is known, and never fewer: many short answers make no long one cheap."""
_FADES = 4
"""How soon a long answer is forgotten: by a fourth of what it was longer, with each that follows."""


class AnswerEstimates:
    """The estimates of one gateway, by run and model."""

    def __init__(self) -> None:
        self._longest: dict[tuple[str, str], int] = {}

    def tokens(self, run_id: str, model: str) -> int:
        """What to expect of the next answer."""
        return self._longest.get((run_id, model), FIRST_ANSWER)

    def learn(self, run_id: str, model: str, tokens: int) -> None:
        """An answer was so long."""
        before = self.tokens(run_id, model)
        faded = before - (before - tokens) // _FADES
        self._longest[run_id, model] = max(tokens, faded, FIRST_ANSWER)

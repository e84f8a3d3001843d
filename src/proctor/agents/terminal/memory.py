"""The conversation, kept within what a model can read.

The rule: when an estimate of a token for every three bytes is above the limit, outputs are shortened to a few
hundred characters, the oldest first, until the conversation is at seven tenths of the limit. If that is not
enough, the oldest steps are left out, and one line names their commands. The system text, the instruction and
the last step always stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]
_BYTES_PER_TOKEN = 3
_GOAL = 0.7
"""To what part of the limit it is brought: doing it at each step would be dearer, as nothing stays cached."""
_SHORT = 400
_NAMED = 20
_NAME = 80


class Memory:
    """What is sent with the next question."""

    def __init__(self, system: Message, prior: Sequence[Message], instruction: Message, most: int) -> None:
        self._system, self._instruction = system, instruction
        self._prior = list(prior)
        self._steps: list[list[Message]] = []
        self._left_out: list[str] = []
        """What was done in the steps that are gone, one text each."""
        self._fixed = _tokens(system) + _tokens(instruction)
        self._counted = sum(map(_tokens, prior))
        """The estimate of all that may be left out, kept: to make it anew at each step takes ever longer."""
        self.most_tokens = most

    def add(self, messages: Sequence[Message]) -> None:
        """A step: what the model said, and what it was answered."""
        self._steps.append(list(messages))
        self._counted += sum(map(_tokens, messages))

    def messages(self) -> list[Message]:
        """All of it, in order."""
        steps = [message for step in self._steps for message in step]
        return [self._system, *self._prior, self._instruction, *self._gone(), *steps]

    def tokens(self) -> int:
        """How long it is, by the estimate."""
        return self._fixed + self._counted + sum(map(_tokens, self._gone()))

    def fit(self) -> str:
        """Bring it within the limit; a sentence on what was done to it, empty when nothing was."""
        before = self.tokens()
        if before <= self.most_tokens:
            return ""
        goal = int(self.most_tokens * _GOAL)
        shortened = self._shorten(before - goal)
        dropped = 0
        while self.tokens() > goal and (self._prior or len(self._steps) > 1):
            gone = [self._prior.pop(0)] if self._prior else self._steps.pop(0)
            self._counted -= sum(map(_tokens, gone))
            self._left_out.append(_what(gone))
            dropped += 1
        if not shortened and not dropped:
            return ""
        return (
            f"The conversation had about {before} tokens, more than {self.most_tokens}: {shortened} older "
            f"outputs were shortened and {dropped} older steps left out. It now has about {self.tokens()}."
        )

    def _shorten(self, excess: int) -> int:
        """Shorten outputs until so many tokens are saved; how many were."""
        count = 0
        for step in self._steps[:-1]:
            for at, message in enumerate(step):
                if excess <= 0:
                    return count
                content = message.get("content")
                if at and isinstance(content, str) and len(content) > 2 * _SHORT:
                    step[at] = {**message, "content": _shortened(content)}
                    saved = _tokens(message) - _tokens(step[at])
                    excess -= saved
                    self._counted -= saved
                    count += 1
        return count

    def _gone(self) -> list[Message]:
        return [{"role": "user", "content": self._summary()}] if self._left_out else []

    def _summary(self) -> str:
        named = self._left_out[-_NAMED:]
        more = len(self._left_out) - len(named)
        before = f"{more} more, then: " if more else ""
        return (
            f"[{len(self._left_out)} earlier steps were left out here, to save room. What you did in them: "
            f"{before}{'; '.join(named)}]"
        )


def _shortened(text: str) -> str:
    half = _SHORT // 2
    left = f"… {len(text) - _SHORT} characters left out later, to save room …"
    return f"{text[:half]}\n{left}\n{text[-half:]}"


def _tokens(message: Message) -> int:
    return len(json.dumps(message, ensure_ascii=False).encode(errors="replace")) // _BYTES_PER_TOKEN + 1


def _what(messages: Sequence[Message]) -> str:
    """A step in a few words: its commands, else the beginning of its text."""
    first = messages[0]
    calls = first.get("tool_calls") or ()
    texts = [str(each["function"].get("arguments", "")) for each in calls if "function" in each]
    text = " ".join(texts) or str(first.get("content") or "")
    return " ".join(text.split())[:_NAME]

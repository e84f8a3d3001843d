"""Encode a document as JSON. Its constructor names the parameters, and the signature is the schema."""

from __future__ import annotations

import json
import random
from typing import Any

from proctor import Experiment, ExperimentContext, register_experiment


@register_experiment("json_encode", tags=("example",))
class JsonEncode(Experiment):
    """Encode a list of records as JSON."""

    def __init__(self, records: int = 20, *, indent: int | None = None, sort_keys: bool = False) -> None:
        self.records = records
        self.options = {"indent": indent, "sort_keys": sort_keys}

    def setup(self, context: ExperimentContext) -> None:
        """Records with text, numbers and a nested list."""
        pick = random.Random(context.seed)  # noqa: S311 - repeatable, no secret
        self.document = [
            {"name": f"record {number}", "id": number, "score": pick.random(), "tags": ["x", "y", "z"]}
            for number in range(self.records)
        ]
        assert json.loads(json.dumps(self.document, **self.options)) == self.document

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:  # noqa: ARG002 - nothing needed of it
        """What is timed."""
        return {"characters": len(json.dumps(self.document, **self.options))}

"""Saved comparisons and timings through the API: listed, shown, and nothing else of the folder."""

from __future__ import annotations

import json

import pytest
from tests.server.conftest import running

from proctor.cli.main import main


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    export = str(folder / "sorts.json")
    arguments = ["time", "-r", "4", "-n", "plain", "-n", "stable", "--export", export, "true", "true"]
    assert main(arguments) in {0, 1, 3}, "whatever the verdict on a machine that may be busy"
    (folder / "other.json").write_text(json.dumps({"kind": "something"}))
    (folder / "old.json").write_text(json.dumps({"schema_version": 1, "kind": "proctor.time", "results": []}))
    return folder


def test_an_exported_timing_is_shown_as_its_document_and_another_file_is_not(results, monkeypatch):
    monkeypatch.setenv("PROCTOR_OUTPUT_DIR", str(results))
    with running(results.parent) as server:
        items = {each["name"]: each for each in server.client.get("/api/timings").json()["items"]}
        assert sorted(items) == ["old.json", "sorts.json"]
        assert items["sorts.json"]["title"] == "plain against stable"
        assert "time it again" in items["old.json"]["headline"]
        document = server.client.get("/api/timings/sorts.json").json()
        assert (document["kind"], document["title"]) == ("time", "plain against stable")
        assert "<svg" in json.dumps(document)
        assert server.client.get("/api/timings/other.json").status_code == 404
        assert server.client.get("/api/timings/..%2Fproctor.db").status_code == 404

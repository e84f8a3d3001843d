from __future__ import annotations

import importlib

import pytest

import proctor
from proctor.errors import MissingExtraError, NotFoundError, UsageError
from proctor.receipt.pack import pack_run
from proctor.render.reporters import write_reports
from proctor.runfolder.transfer import export_run
from proctor.settings import load_settings
from proctor.store.blobs import open_blobs
from proctor.store.open import open_store


@pytest.fixture
def stored(runs):
    data = runs.failures()
    attempts = [(record, record is trial.counted) for trial in data.trials for record in trial.attempts]
    with open_store(load_settings().store_url) as store:
        store.import_run(data.info, [trial.planned for trial in data.trials], attempts)
    return data


@pytest.fixture
def absent(monkeypatch):
    """Some libraries, as if they had never been installed."""
    real = importlib.import_module

    def missing(name, *rest):
        if name in {"pandas", "polars"}:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)


def test_rows_and_columns_need_nothing_installed(stored):
    rows = proctor.load("latest", as_="rows")
    assert [row["params.profile"] for row in rows][:2] == ["balanced", "performance"]
    assert rows[-1]["outcome"] is None
    columns = proctor.load(stored.info.name, "attempts", as_="columns")
    assert columns["number"] == [1, 1, 1, 2, 1, 1]
    assert len(proctor.load(kind="iterations", as_="rows")) == 160


@pytest.mark.parametrize("kind", ["trials", "attempts", "iterations"])
def test_store_folder_and_receipt_are_one(stored, tmp_path, kind):
    settings = load_settings()
    with open_store(settings.store_url) as store:
        blobs = open_blobs(settings.blobs_url)
        export_run(store, blobs, stored.info.id, tmp_path / "folder", write_reports)
        pack_run(store, blobs, stored.info.id, tmp_path / "r.zip")
    from_store = proctor.load("latest", kind, as_="rows")
    assert proctor.load(tmp_path / "r.zip", kind, as_="rows") == from_store
    with open_store(settings.store_url) as store:
        store.delete_run(stored.info.id)
    assert proctor.load(tmp_path / "folder", kind, as_="rows") == from_store


def test_a_library_that_is_missing_is_named_with_how_to_get_it(stored, absent):
    for name in ("pandas", "polars"):
        with pytest.raises(
            MissingExtraError, match=rf"needs '{name}': pip install 'proctor-bench\[{name}\]'"
        ):
            proctor.load(as_=name)


def test_without_pandas_the_usual_form_is_rows(stored, absent):
    assert proctor.load() == proctor.load(as_="rows")


def test_a_wrong_word_names_the_right_ones(stored):
    with pytest.raises(UsageError, match="kind is one of trials, attempts, iterations"):
        proctor.load(kind="episodes")
    with pytest.raises(UsageError, match="as_ is one of pandas, polars, rows, columns"):
        proctor.load(as_="arrow")
    with pytest.raises(NotFoundError):
        proctor.load("nobody", as_="rows")


@pytest.mark.needs("pandas")
def test_a_data_frame_keeps_types_where_values_are_missing(stored):
    frame = proctor.load()
    assert list(frame.columns) == list(proctor.load(as_="columns"))
    assert str(frame["index"].dtype) == "int64"
    assert str(frame["number"].dtype) == "Int64"
    assert str(frame["scored"].dtype) == "boolean"
    assert str(frame["metrics.duration_s.p50"].dtype) == "float64"
    assert frame.groupby("outcome", dropna=False).size().sum() == 6


@pytest.mark.needs("polars")
def test_polars_has_the_same_columns(stored):
    frame = proctor.load(as_="polars")
    assert frame.columns == list(proctor.load(as_="columns"))
    assert frame["number"].null_count() == 1

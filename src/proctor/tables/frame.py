"""`proctor.load`: a run's numbers in a notebook, as a data frame or as plain Python."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, overload

from proctor.errors import MissingExtraError, UsageError
from proctor.tables.columns import KINDS, Kind, Table, Type
from proctor.tables.source import open_source

As = Literal["pandas", "polars", "rows", "columns"]
FORMS: tuple[As, ...] = ("pandas", "polars", "rows", "columns")


@overload
def load(run: str | Path = ..., kind: Kind = ..., *, as_: None = ...) -> Any: ...
@overload
def load(run: str | Path = ..., kind: Kind = ..., *, as_: Literal["rows"]) -> list[dict[str, Any]]: ...
@overload
def load(run: str | Path = ..., kind: Kind = ..., *, as_: Literal["columns"]) -> dict[str, list[Any]]: ...
@overload
def load(run: str | Path = ..., kind: Kind = ..., *, as_: Literal["pandas", "polars"]) -> Any: ...
def load(run: str | Path = "latest", kind: Kind = "trials", *, as_: As | None = None) -> Any:
    """One table of a run: a pandas data frame where pandas is installed, otherwise a list of dicts.

    `run` is an id, the beginning of one, a name, `latest`, `latest~1`, a run folder or a receipt. `kind` is
    `trials` (one row per trial, with the attempt that counts), `attempts` (every attempt) or `iterations`
    (every measured iteration of an experiment). `as_` names the form and makes it independent of what is
    installed: `pandas`, `polars`, `rows` (a list of dicts) or `columns` (a dict of lists); the last two need
    nothing installed.
    """
    from proctor.settings import load_settings
    from proctor.store.open import StorePool

    _one_of("kind", kind, KINDS)
    form = as_ or _usual_form()
    _one_of("as_", form, FORMS)
    make = {"pandas": _pandas, "polars": _polars, "rows": _rows, "columns": _columns}[form]
    if form in {"pandas", "polars"}:
        _library(form)
    with (
        StorePool(load_settings().store_url, create=False) as stores,
        open_source(str(run), stores) as source,
    ):
        return make(source.table(kind))


def _usual_form() -> As:
    try:
        _library("pandas")
    except MissingExtraError:
        return "rows"
    return "pandas"


def _one_of(name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise UsageError(f"load({name}={value!r}): {name} is one of {', '.join(known)}")


def _rows(table: Table) -> list[dict[str, Any]]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows()]


def _columns(table: Table) -> dict[str, list[Any]]:
    found: list[list[Any]] = [[] for _ in table.columns]
    for row in table.rows():
        for values, value in zip(found, row, strict=True):
            values.append(value)
    return {column.name: values for column, values in zip(table.columns, found, strict=True)}


def _pandas(table: Table) -> Any:
    """Integers and truths stay what they are where some are missing: pandas' own nullable types."""
    pandas = _library("pandas")
    kinds: dict[Type, str] = {"int": "Int64", "bool": "boolean", "float": "float64", "text": "object"}
    values = _columns(table)
    made = {}
    for column in table.columns:
        whole = None not in values[column.name]
        kind = {"int": "int64", "bool": "bool"}.get(column.type) if whole else None
        made[column.name] = pandas.Series(values[column.name], dtype=kind or kinds[column.type])
    return pandas.DataFrame(made)


def _polars(table: Table) -> Any:
    polars = _library("polars")
    kinds = {"int": polars.Int64, "bool": polars.Boolean, "float": polars.Float64, "text": polars.String}
    schema = {column.name: kinds[column.type] for column in table.columns}
    return polars.DataFrame(_columns(table), schema=schema)


def _library(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        why = f"proctor.load(as_='{name}'), unlike as_='rows',"
        raise MissingExtraError(name, name, why) from None

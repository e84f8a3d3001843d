"""The files that every result can be written to: a page, Markdown, and the document as data."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from proctor.model.document import Document

_FILE = click.Path(path_type=Path, dir_okay=False)
_HTML = click.option("--html", "html_file", type=_FILE, help="Also write an HTML page to this file.")
_MARKDOWN = click.option("--markdown", "markdown_file", type=_FILE, help="Also write Markdown to this file.")
_DOCUMENT = click.option(
    "--document",
    "document_file",
    type=_FILE,
    help="Also write what the page shows, as JSON, to this file.",
)


class Outputs(NamedTuple):
    """Where a result is written, besides the terminal."""

    html_file: Path | None = None
    markdown_file: Path | None = None
    document_file: Path | None = None

    @property
    def folder(self) -> Path:
        """Where the page is: links are relative to it."""
        return next((path.parent for path in self if path), Path())

    def write(self, document: Document) -> None:
        """Write every file that was asked for, with the folders that they are in."""
        from proctor.runfolder.files import make_folder, write_atomic, write_json

        for path in filter(None, self):
            make_folder(path.parent)
        if self.html_file:
            from proctor.render.document.html import html

            write_atomic(self.html_file, html(document))
        if self.markdown_file:
            from proctor.render.document.markdown import markdown

            write_atomic(self.markdown_file, markdown(document))
        if self.document_file:
            from proctor.model.document import to_mapping

            write_json(self.document_file, to_mapping(document))

    def show(self, document: Document, *, quiet: bool = False) -> None:
        """Write the files and print the document, or with `quiet` only write."""
        from proctor.cli.table import print_document

        self.write(document)
        if not quiet:
            print_document(document)
            self.say()

    def say(self, *, quiet: bool = False) -> None:
        """Print which files were written."""
        from proctor.cli.table import printable

        written = [printable(os.fspath(path)) for path in self if path]
        if written and not quiet:
            print(f"\nwritten: {', '.join(written)}")


def takes_outputs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all three files, which arrive as one `outputs`."""
    return _MARKDOWN(takes_page(function))


def takes_page(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same without Markdown, for a command that writes its own."""
    return _HTML(takes_document(function))


def takes_document(function: Callable[..., Any]) -> Callable[..., Any]:
    """Only the document, for a command whose other files have names of their own."""
    from functools import wraps

    @wraps(function)
    def gathered(**given: Any) -> Any:
        files = Outputs(**{name: given.pop(name) for name in Outputs._fields if name in given})
        return function(outputs=files, **given)

    return _DOCUMENT(gathered)

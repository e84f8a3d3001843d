"""Renderers of documents: every kind of result for terminals, in Markdown and as a page."""

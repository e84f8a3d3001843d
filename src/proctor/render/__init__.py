"""How results are shown: pages, Markdown, charts, tables."""

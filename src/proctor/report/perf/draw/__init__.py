"""Charts of the harness, drawn once and written twice: as SVG for pages, as PNG for everything else."""

"""The artifacts of the performance harness: manifest, summary, metrics, series, charts, and their checks."""

"""One run from spec to report: the wiring that the command line, the Python API and the service share."""

"""Benchmark suites written for other tools, run as they are: of pytest-benchmark and of asv.

What is here runs in the suite's own interpreter, which may have nothing of Proctor's dependencies.
"""

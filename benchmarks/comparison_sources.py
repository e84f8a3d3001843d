"""The code that `comparison_quality.py` compares, and how each tool is asked to time it."""

from __future__ import annotations

WORK = '''
"""One version of the code: {units} units of work per call."""
import hashlib
import json
import os
import random
import subprocess
import tempfile
import threading
import time

UNITS = {units}
CHANGED = {changed}
BLOCK = bytes(range(256)) * 256
FILE = os.path.join(tempfile.gettempdir(), f"comparison-quality-{{os.getpid()}}")
SOURCE = random.Random(1)
NUMBERS = [SOURCE.random() for _ in range(100)]
RECORD = {{"name": "proctor", "values": [1.5, 2.5, 3.5], "tags": ["a", "b"], "nested": {{"x": 1, "y": None}}}}


def sort():
    for _ in range(UNITS):
        sorted(NUMBERS)


def json_round():
    for _ in range(UNITS):
        json.loads(json.dumps(RECORD))


def hashes(count):
    for _ in range(count):
        hashlib.sha256(BLOCK).digest()


def waits():
    """4 ms of work, and a little waiting in the changed version."""
    for _ in range(20 * 90):
        sorted(NUMBERS)
    if CHANGED:
        time.sleep(0.0004)


def child():
    """File I/O and a child process; both do UNITS of work."""
    for _ in range(UNITS):
        with open(FILE, "wb") as file:
            file.write(BLOCK[:8192])
        with open(FILE, "rb") as file:
            file.read()
        os.remove(FILE)
    count = f"i=0; while [ $i -lt {{UNITS * 120}} ]; do i=$((i+1)); done"
    subprocess.run(["/bin/sh", "-c", count], check=True)


def threads():
    """Two threads that share the work and can run at the same time."""
    both = [threading.Thread(target=hashes, args=(UNITS * 3,)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()


def parallel():
    """The same work; in the changed version in two threads."""
    if not CHANGED:
        hashes(120)
        return
    other = threading.Thread(target=hashes, args=(60,))
    other.start()
    hashes(60)
    other.join()
'''
EXPERIMENT = '''
from proctor import Experiment, register_experiment

import work


@register_experiment("workload")
class Workload(Experiment):
    """The function under comparison."""

    def __init__(self, function: str = "sort"):
        self.function = getattr(work, function)

    def execute_once(self, context):
        self.function()
        return {}
'''
PYPERF = """
import sys, pyperf
sys.path.insert(0, {folder!r})
import work
pyperf.Runner().bench_func({function!r}, getattr(work, {function!r}))
"""
PYTEST = """
import sys
sys.path.insert(0, {folder!r})
import work
def test_{function}(benchmark):
    benchmark(getattr(work, {function!r}))
"""
SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import work
for _ in range(1000):
    work.{function}()
"""
ASV = """
import os, sys
sys.path.insert(0, os.environ["SIDE"])
import work
def time_it():
    work.{function}()
"""
PLACES_WORK = '''
"""One version of the code: {units} units of work per call."""
import re

UNITS = {units}
PATTERN = re.compile(r"\\s*(?:(\\d+)|([A-Za-z_]\\w*)|(.))")
SOURCE = "alpha = beta * 12 + gamma_3 / (delta - 7); "


class Token:
    def __init__(self, kind, text):
        self.kind = kind
        self.text = text


def expressions():
    """Tokens of a text."""
    for _ in range(UNITS):
        [Token("number" if number else "name" if name else "operator", number or name or operator)
         for number, name, operator in PATTERN.findall(SOURCE)]


class Node:
    def __init__(self, left, right):
        self.left = left
        self.right = right


def tree(depth):
    return Node(tree(depth - 1), tree(depth - 1)) if depth else None


def allocation():
    """Trees and dictionaries that are dropped at once."""
    for number in range(UNITS):
        tree(3)
        {{str(number): [number, (number, number + 1)], "x": {{"y": number}}}}


def arithmetic():
    """Integers and floats."""
    total = 0.0
    for _ in range(UNITS):
        for number in range(30):
            total += (number * number) % 7 - (number ^ 3) * 0.5
    return total
'''
PLACES_EXPERIMENT = '''
import work
from proctor import Experiment, register_experiment


@register_experiment("workload")
class Workload(Experiment):
    """The function under comparison."""

    def __init__(self, function: str = "arithmetic"):
        self.function = getattr(work, function)

    def execute_once(self, context):
        self.function()
        return {}
'''

"""Visits over a day that depend on the seed alone."""

import os
import random

rng = random.Random(int(os.environ["PROCTOR_SEED"]))
with open("/inputs/times.txt", "w") as file:
    file.writelines(f"{rng.randrange(86_400)}\n" for _ in range(3_000))

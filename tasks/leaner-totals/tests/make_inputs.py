"""Sales that depend on the seed alone."""

import os
import random

rng = random.Random(int(os.environ["PROCTOR_SEED"]))
with open("/inputs/sales.csv", "w") as file:
    file.writelines(f"shop-{rng.randrange(20):02},{rng.randrange(1, 10_000)}\n" for _ in range(60_000))

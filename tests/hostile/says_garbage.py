"""Says random bytes on HOSTILE_FD, and ends well."""

import os
import random

from _bounded import bound

bound()
chance = random.Random(int(os.environ.get("HOSTILE_SEED", "1")))
try:
    for _ in range(1_000):
        os.write(int(os.environ["HOSTILE_FD"]), chance.randbytes(chance.randint(1, 4096)))
except OSError:
    pass  # it is heard no more

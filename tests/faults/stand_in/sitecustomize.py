"""A clock that jumps by hours and years at every look, in processes whose environment has FAULTS_CLOCK."""

import os
import time
from random import Random

if seed := os.environ.get("FAULTS_CLOCK"):
    true_time, rng = time.time, Random(seed)
    time.time = lambda: true_time() + rng.choice([0.0, 0.0, 3600.0, -3600.0, 3e7, -3e7])

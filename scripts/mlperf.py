"""`automcu mlperf`, from a checkout that need not be installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automcu_ray.commands.mlperf import main

if __name__ == "__main__":
    main()

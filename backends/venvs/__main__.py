"""Makes the virtual environments of backends: `python -m backends.venvs [vela] [executorch]`."""

import sys

from backends.venvs.environment import main

sys.exit(main(sys.argv[1:]))

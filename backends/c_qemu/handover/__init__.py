"""What the user takes home beside the network's C: its interface, projects, a README, and a check of all that."""

from pathlib import Path

CHECK = Path(__file__).parent / "check"  # scripts that ship in every bundle and need nothing of this project
RECIPE, SUMS = "verify.json", "SHA256SUMS"

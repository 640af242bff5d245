"""Whether a network fits, and by how much not: bounds, estimates, repairs, cached verdicts."""

"""Feasibility before training: the gate, and what its verdicts teach."""

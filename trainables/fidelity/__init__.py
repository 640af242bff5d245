"""How well short trainings and zero-cost figures rank networks: the measuring."""

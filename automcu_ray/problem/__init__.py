"""What is asked: a target, hard constraints, a task."""

"""The arena's trials: the workload that is trained for a task, and the checks that an artifact has to pass."""

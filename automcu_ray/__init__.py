"""The vocabulary of the project, and what more than one folder needs."""

"""Algorithms that searchers build on."""

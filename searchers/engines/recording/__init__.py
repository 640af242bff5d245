"""Calls to an engine: written down, and answered again from what was written."""

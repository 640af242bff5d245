"""Toolchains whose Python packages do not go with ours: each runs in a virtual environment of its own."""

"""Comparisons over many runs: sweeps, their statistics, how well proxies rank."""

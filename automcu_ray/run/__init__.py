"""Wires searchers, trainables and backends together: the only package that imports those folders."""

"""Agents that share one conversation: the arm without isolation of table IV (paper 000, section III-E)."""

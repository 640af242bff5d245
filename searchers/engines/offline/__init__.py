"""Rules that answer in place of a language model."""

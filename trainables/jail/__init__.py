"""The jail: generated code is hostile until proven otherwise, so it is built and trained in here."""

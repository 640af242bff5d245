"""The arena's agent: tools on a workspace, a conversation an attempt, and the Ray Tune searcher that drives it."""

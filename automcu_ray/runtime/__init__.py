"""Where a run lives: its configuration, its folder, its cluster, its plugins."""

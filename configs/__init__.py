"""The YAML groups that a run is composed of; a package so that the wheel brings them."""

"""Programs that attack the jail, one module a family: what each tries stands in its name."""

"""What every other package stands on: errors, frozen models, whole-file writes, training recipes, verdicts, costs."""

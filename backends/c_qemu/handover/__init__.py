"""What the user takes home beside the network's C: its interface, projects, a README, and a check of all that."""

"""The console command `automcu`: a module for each subcommand, and `main` that joins them."""

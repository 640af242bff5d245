"""What people look at: screen, plots, pages."""

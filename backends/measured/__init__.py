"""Boards from the map as a second opinion: what a finalist costs in time, current, energy and heat."""

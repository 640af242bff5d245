"""A folder for PYTHONPATH of MLPerf's runner: it lets a pseudo terminal pass for a USB serial device."""

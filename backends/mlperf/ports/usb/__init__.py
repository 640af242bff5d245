"""Stands in for pyusb, which the runner imports: there is no USB device beside the emulated board."""

"""MAX78000 and MAX78002, by Analog Devices' ai8x-synthesis."""

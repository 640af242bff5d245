"""Ray Trainables, the training loop, data sets and finalists."""

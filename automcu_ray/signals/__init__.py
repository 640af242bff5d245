"""From raw samples to what a network sees: front ends in integers, the same in numpy and in the C that ships."""

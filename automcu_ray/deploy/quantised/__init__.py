"""Files that come quantised already: read with their own scales, written as the int8 graph that the kernels know."""

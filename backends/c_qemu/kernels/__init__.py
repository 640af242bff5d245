"""int8 networks in C of our own: an ONNX graph becomes layers, each a call of a kernel of `c/` with its shape."""

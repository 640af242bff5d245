"""From a PyTorch network to what ships: export, int8, ONNX rewrites, the bundle."""

"""C that turns a stream of samples into windows of the network's input, and the network's answer to them."""

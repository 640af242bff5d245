"""What can be searched: specs, cells and generated code, their graphs, their spaces, small steps between them."""

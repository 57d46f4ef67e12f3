"""An artifact loaded and run: launch lists over kernels and operators, derived weights, arenas; on a GPU recordings and streams."""

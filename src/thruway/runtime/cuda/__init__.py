"""Launch on an NVIDIA GPU: kernels through the driver, library calls through torch, whole steps replayed as CUDA graphs."""

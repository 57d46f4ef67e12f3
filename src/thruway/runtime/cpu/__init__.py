"""Launch on the CPU: the plain Python executor that defines the meaning, and the rows that the native one runs."""

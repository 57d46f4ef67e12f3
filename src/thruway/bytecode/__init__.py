"""CPython bytecode of 3.11 and 3.12: decoded to instructions, assembled back, and read for control flow and liveness."""

"""Patterns: one file per library call that does the work of several operators, and the choice of calls for a CPU (`cpu_*`)."""

"""Shadow mode: the first calls of a compiled function run eager beside, on copies, and a difference is an error with its place and a script."""

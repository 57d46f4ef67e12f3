"""The loop-level IR and its meaning: grammar, printer, verifier, simplifier, reference evaluator, and lowering from graphs."""

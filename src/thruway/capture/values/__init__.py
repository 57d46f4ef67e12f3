"""What stands on the symbolic stack, and one file per protocol (attribute, call, iterate, mutate, binary, compare, truth, …)."""

"""The public functions and the compiled module's proxy. Imports no compiler room: `lazy` reaches `pipeline` when one is wanted."""

"""From bytecode and live objects to `Captured`: a symbolic interpreter over explicit frames."""

"""Sources become libraries: keys with named entries, the disk store, the toolchain, compiling in parallel."""

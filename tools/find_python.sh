#!/bin/sh
# Prints a working interpreter of the Python version given as "3.11"; prints nothing and fails where there is none.
# pyenv's shims exist for versions that are not active, so each candidate has to run before it counts.
for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1"*/bin/python python3 python; do
    if found=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) && [ "$found" = "$1" ]; then
        echo "$candidate"
        exit 0
    fi
done
exit 1

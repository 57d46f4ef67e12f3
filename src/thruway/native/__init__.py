"""The native core: guards, dispatch, the frame hook and launch in C, or their slow Python twin where it was not built.

Nothing happens at import but loading the extension. `prepare()`, called before the first compile, binds it to the loaded
torch and runs its self-tests; `features()` then says what may be used.
"""

from __future__ import annotations

from thruway.native import probe

try:
    from thruway.native import _core
except ImportError:
    _core = None

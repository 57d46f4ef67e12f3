"""Opcode → handler, one file per family. A handler gets (state, frame, instruction) and returns None, or what the loop shall do:
Inline(frame), Return(value), Yield(value). Jumps set `frame.pc`."""

from __future__ import annotations

from thruway.capture.opcodes import build, calls, exceptions, functions, imports, jumps, matching, operators, stack

HANDLERS = {**stack.HANDLERS, **jumps.HANDLERS, **operators.HANDLERS, **build.HANDLERS, **calls.HANDLERS, **functions.HANDLERS, **exceptions.HANDLERS,
            **imports.HANDLERS, **matching.HANDLERS}

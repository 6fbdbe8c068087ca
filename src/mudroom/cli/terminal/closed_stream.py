"""Replace standard descriptors that are closed when mudroom starts, as by ``>&-`` in a shell."""

from __future__ import annotations

import os
import sys

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
"""Name and mode, by descriptor."""


def replace_closed() -> None:
    """Open /dev/null for each closed standard descriptor. Otherwise one of mudroom's own pipes or sockets would get its
    number, and become the command's input or output."""
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:  # the interpreter's mark for a closed descriptor
            null = os.open(os.devnull, os.O_RDWR)
            if null == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))

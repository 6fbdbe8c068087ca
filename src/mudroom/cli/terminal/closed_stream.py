"""Standard descriptors that are closed when mudroom starts, as by ``>&-`` in a shell."""

from __future__ import annotations

import os
import sys

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
"""By descriptor."""


def replace_closed() -> None:
    """Open /dev/null in the place of each closed standard descriptor. Otherwise a pipe or socket of mudroom's own would
    get its number, and be taken for the command's input or output."""
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:  # so the interpreter notes a closed descriptor
            null = os.open(os.devnull, os.O_RDWR)
            if null == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))

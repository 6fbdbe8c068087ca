"""This system's shell: the words before a line of text that it reads as typed.

On Windows it is cmd.exe, without AutoRun commands (/d); with /s it removes the first and the last quote, and reads the
rest as typed ("cmd /?", ``ext/windows/core/windows_command.py``). ``bash.exe`` in System32 is no shell for this system:
it starts a virtual machine (WSL).
"""

from __future__ import annotations

import sys

CMD = (b"cmd", b"/d", b"/s", b"/c")


def shell_words(shell: bytes = b"sh", platform: str = sys.platform) -> tuple[bytes, ...]:
    """Return the words before a line. ``shell``: the program on systems with POSIX shells."""
    return CMD if platform == "win32" else (shell, b"-c")

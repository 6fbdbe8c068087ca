"""The shell of this system: the words before a line of text that it reads as typed.

On Windows it is cmd.exe, without AutoRun commands (/d); with /s it takes the first and the last quote away, and reads
the rest as it was typed ("cmd /?", ``ext/windows/core/windows_command.py``). ``bash.exe`` of System32 is the door to a
virtual machine (WSL).
"""

from __future__ import annotations

import sys

CMD = (b"cmd", b"/d", b"/s", b"/c")


def shell_words(shell: bytes = b"sh", platform: str = sys.platform) -> tuple[bytes, ...]:
    """Return the words before a line. ``shell``: the program where shells are POSIX's."""
    return CMD if platform == "win32" else (shell, b"-c")

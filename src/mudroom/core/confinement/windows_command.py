"""What CreateProcessW is handed: the program, one command line, one block of environment. Pure.

A command line is one string, and every program takes it apart by itself. Nearly all do it as the C runtime does
("Parsing C command-line arguments"); cmd.exe, which runs batch files, does not, and finds commands of its own in what
was quoted for the others (CVE-2024-24576). So:

1. The program is found here and named by its whole path (lpApplicationName): Windows guesses nothing, and never looks
   in the current directory, which is the agent's.
2. A batch file is recognised by what Windows would run, trailing dots and spaces dropped, and is run by a cmd.exe that
   is named, with an argument quoted for it, or refused where no quoting is sure. One that strips the quotes itself
   (%~1) reads its arguments as commands on any system: no caller can keep it from that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

LONGEST = 32_766
"""UTF-16 units of a command line: CreateProcessW, without the NUL."""
LONGEST_BATCH = 8_191
"""Of cmd.exe."""

_PLAIN = re.compile(r"[^\s\"\x00]+\Z")
_PLAIN_FOR_CMD = re.compile(r"[0-9A-Za-z_./:\\@+~-]+\Z")
"""Not ``=``, nor a comma or semicolon: between the arguments of a batch file they part words, as blanks do."""
_NEVER_FOR_CMD = re.compile(r'["%\r\n\x00]')
_BATCH = (".bat", ".cmd")


def quote(words: Sequence[str]) -> str:
    """A command line that the C runtime and CommandLineToArgvW take apart into just these words. Raises ValueError for
    a NUL, a quote in the program's name (which cannot be escaped there), and what is too long."""
    if not words:
        raise ValueError("there is no command to run")
    if any("\0" in word for word in words):
        raise ValueError("a command line cannot hold a NUL")
    if '"' in words[0]:
        raise ValueError("the name of a program cannot hold a quote")
    line = " ".join([f'"{words[0]}"', *(_quoted(word) for word in words[1:])])
    return _fits(line, LONGEST)


def _quoted(word: str) -> str:
    if _PLAIN.match(word):
        return word
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', word)  # backslashes count only before a quote: twice, and one for itself
    return '"' + re.sub(r"(\\+)\Z", r"\1\1", escaped) + '"'


def is_batch(program: str) -> bool:
    """Whether Windows would hand this file to cmd.exe."""
    return program.rstrip(" .").lower().endswith(_BATCH)


def quote_batch(shell: str, words: Sequence[str]) -> str:
    """The command line of ``shell``, the path of cmd.exe, for a batch file and its arguments. No AutoRun commands (/d),
    no delayed expansion (/v:off). Raises ValueError for an argument that cmd.exe could read as more than a word."""
    for word in words:
        if _NEVER_FOR_CMD.search(word):
            raise ValueError(
                f"{words[0]} is a batch file, and no quoting keeps cmd.exe from reading more into {word!r}"
            )
    inner = " ".join([f'"{words[0]}"', *(_for_cmd(word) for word in words[1:])])
    return _fits(f'"{shell}" /e:on /v:off /d /s /c "{inner}"', LONGEST_BATCH)


def _for_cmd(word: str) -> str:
    if _PLAIN_FOR_CMD.match(word):
        return word
    return '"' + re.sub(r"(\\+)\Z", r"\1\1", word) + '"'


def _fits(line: str, most: int) -> str:
    if len(line.encode("utf-16-le", "surrogatepass")) // 2 > most:
        raise ValueError(f"the command line is longer than the {most} characters that Windows takes")
    return line


def find_program(name: str, path: str, extensions: str, is_file: Callable[[str], bool], cwd: str) -> str | None:
    """The whole path of a program. A name without a directory is looked for in ``path`` alone, with each of
    ``extensions`` (PATHEXT) unless it has one of them. None: not found, or relative to a drive, or a file's stream."""
    endings = [one.lower() for one in extensions.split(";") if one.startswith(".")] or [".exe"]
    bare = "\\" not in name and "/" not in name
    if re.match(r"[A-Za-z]:(?![\\/])|[\\/](?![\\/])", name) or (bare and ":" in name):
        return None
    # entries that are not absolute would make the directory in which we happen to be one of the places
    places = [one.strip('"') for one in path.split(";") if is_absolute(one.strip('"'))] if bare else [cwd]
    own = name.lower().rstrip(" .")
    candidates = [name] if any(own.endswith(one) for one in endings) else [name + one for one in endings]
    for place in places:
        for candidate in candidates:
            whole = join(place, candidate)
            if is_file(whole):
                return whole
    return None


def is_absolute(path: str) -> bool:
    """With a drive, and from its root; or a server's."""
    return bool(re.match(r"[A-Za-z]:[\\/]", path)) or path.startswith("\\\\")


def join(directory: str, name: str) -> str:
    if is_absolute(name):
        return name.replace("/", "\\")
    return directory.rstrip("\\/") + "\\" + name.replace("/", "\\")


def environment_block(variables: Mapping[str, str]) -> str:
    """Every variable as NAME=value with a NUL after it, by upper-case name, and one more NUL at the end. Raises
    UsageError for two names that differ only in case, which are one there, and for what cannot be in a block."""
    seen: dict[str, str] = {}
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r} cannot be a variable of the environment")
        if name.upper() in seen:
            raise ValueError(f"{seen[name.upper()]} and {name} are one variable on Windows")
        seen[name.upper()] = name
    rows = [f"{seen[upper]}={variables[seen[upper]]}\0" for upper in sorted(seen)]
    return ("".join(rows) or "\0") + "\0"

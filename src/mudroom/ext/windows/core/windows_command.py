"""Arguments for CreateProcessW: the program, one command line, one environment block. Pure.

A command line is one string, and every program parses it itself. Nearly all use the C runtime's rules ("Parsing C
command-line arguments"). cmd.exe, which runs batch files, does not: it finds commands inside text that was quoted for
the C runtime (CVE-2024-24576). So:

1. The program is looked up here and passed by its full path (lpApplicationName). Windows then neither guesses nor looks
   in the current directory, which the agent controls.
2. A batch file is recognised as Windows does, ignoring trailing dots and spaces. It is run by an explicit cmd.exe with
   arguments quoted for cmd.exe, or refused if no quoting is safe. A batch file that removes the quotes itself (%~1)
   executes its arguments as commands on every system; no caller can prevent that.
3. A line for cmd.exe itself (``cmd /s /c LINE``) is passed as it is, between quotes: with /s it removes the first and
   the last quote, and reads the rest as it was typed ("cmd /?").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from mudroom.core.text.regex import regex

LONGEST = 32_766
"""The longest command line in UTF-16 units, without the NUL: CreateProcessW."""
LONGEST_BATCH = 8_191
"""The same limit in cmd.exe."""
_OPERATORS = frozenset("|&<>^()%")
_INSIDE = frozenset((
    "assoc", "break", "call", "cd", "chdir", "cls", "color", "copy", "date", "del", "dir", "echo", "erase", "exit",
    "for", "ftype", "goto", "if", "md", "mkdir", "mklink", "move", "path", "pause", "popd", "prompt", "pushd", "rd",
    "rem", "ren", "rename", "rmdir", "set", "setlocal", "shift", "start", "time", "title", "type", "ver", "verify",
    "vol",
))  # fmt: skip
"""cmd.exe's built-in commands ("help" lists them): there are no programs with these names."""

_PLAIN = regex(r"[^\s\"\x00]+\Z")
_PLAIN_FOR_CMD = regex(r"[0-9A-Za-z_./:\\@+~-]+\Z")
"""Without ``=``, comma and semicolon: they separate a batch file's arguments, as spaces do."""
_NEVER_FOR_CMD = regex(r'["%\r\n\x00]')
_OPTION = regex(r"/[a-z](?::[a-z]+)?\Z")
_BATCH = (".bat", ".cmd")


def quote(words: Sequence[str]) -> str:
    """Return a command line that the C runtime and CommandLineToArgvW split into exactly these words. Raise ValueError
    for a NUL, for a quote in the program's name (which cannot be escaped), and for a line that is too long."""
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
    # backslashes count only before a quote: double them, and add one for the quote
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', word)
    return '"' + re.sub(r"(\\+)\Z", r"\1\1", escaped) + '"'


def needs_shell(line: str) -> bool:
    """Return whether cmd.exe reads more in a line than a program and its words."""
    first = re.match(r"\s*([A-Za-z]+)(?![\w.\\:-])", line)
    return not _OPERATORS.isdisjoint(line) or (first is not None and first[1].lower() in _INSIDE)


def split(line: str) -> list[str]:
    """Return a command line's words as the C runtime splits it: a backslash is literal, except before a quote. Raise
    ValueError for a quote that is open at the end."""
    words: list[str] = []
    word: str | None = None
    is_quoted, at = False, 0
    while at < len(line):
        end = at
        while line[end : end + 1] == "\\":
            end += 1
        slashes, mark = end - at, line[end : end + 1]
        at = end + 1
        if mark == '"' and words and slashes % 2:  # in the program's name they escape nothing
            word = (word or "") + "\\" * (slashes // 2) + mark
        elif mark == '"':
            word = (word or "") + "\\" * (slashes // 2 if words else slashes)
            if is_quoted and words and line[at : at + 1] == mark:
                word, at = word + mark, at + 1
            else:
                is_quoted = not is_quoted
        elif slashes or is_quoted or mark not in " \t":
            word, at = (word or "") + (line[at - 1 - slashes : end] or mark), end + (not slashes)
        elif word is not None:
            words, word = [*words, word], None
    if is_quoted:
        raise ValueError("No closing quotation")
    return words if word is None else [*words, word]


def is_batch(program: str) -> bool:
    """Return whether Windows would run this file with cmd.exe."""
    return program.rstrip(" .").lower().endswith(_BATCH)


def quote_batch(shell: str, words: Sequence[str]) -> str:
    """Return the command line for ``shell``, the path to cmd.exe, with a batch file and its arguments. AutoRun commands
    (/d) and delayed expansion (/v:off) are disabled. Raise ValueError for an argument that cmd.exe could parse as more
    than a word."""
    for word in words:
        if _NEVER_FOR_CMD.search(word):
            raise ValueError(
                f"{words[0]} is a batch file, and no quoting keeps cmd.exe from reading more into {word!r}"
            )
    inner = " ".join([f'"{words[0]}"', *(_for_cmd(word) for word in words[1:])])
    return _fits(f'"{shell}" /e:on /v:off /d /s /c "{inner}"', LONGEST_BATCH)


def is_shell_line(program: str, words: Sequence[str]) -> bool:
    """Return whether a command is ``cmd /s /c LINE``, with no other words than options before the line."""
    options = [word.lower() for word in words[1:-1]]
    is_shell = program.replace("/", "\\").rpartition("\\")[2].lower() in ("cmd", "cmd.exe")
    return is_shell and "/s" in options and options[-1:] == ["/c"] and all(map(_OPTION.match, options))


def quote_shell_line(program: str, words: Sequence[str]) -> str:
    """Return cmd.exe's command line with a line that it reads as typed. Raise ValueError for a line that it would read
    only in part."""
    if re.search(r"[\r\n\x00]", words[-1]):
        raise ValueError("cmd.exe reads one line: join the others to it with &&")
    return _fits(f'"{program}" {" ".join(words[1:-1])} "{words[-1]}"', LONGEST_BATCH)


def _for_cmd(word: str) -> str:
    if _PLAIN_FOR_CMD.match(word):
        return word
    return '"' + re.sub(r"(\\+)\Z", r"\1\1", word) + '"'


def _fits(line: str, most: int) -> str:
    if len(line.encode("utf-16-le", "surrogatepass")) // 2 > most:
        raise ValueError(f"the command line is longer than the {most} characters that Windows takes")
    return line


def find_program(name: str, path: str, extensions: str, is_file: Callable[[str], bool], cwd: str) -> str | None:
    """Return a program's full path. A name without a directory is searched in ``path`` only, with each of
    ``extensions`` (PATHEXT) unless it already has one. Return None if it is not found, is relative to a drive, or names
    a file's stream."""
    endings = [ending.lower() for ending in extensions.split(";") if ending.startswith(".")] or [".exe"]
    bare = "\\" not in name and "/" not in name
    if re.match(r"[A-Za-z]:(?![\\/])|[\\/](?![\\/])", name) or (bare and ":" in name):
        return None
    # relative entries would include our current directory in the search
    places = [entry.strip('"') for entry in path.split(";") if is_absolute(entry.strip('"'))] if bare else [cwd]
    own = name.lower().rstrip(" .")
    candidates = [name] if any(own.endswith(ending) for ending in endings) else [name + ending for ending in endings]
    for place in places:
        for candidate in candidates:
            whole = join(place, candidate)
            if is_file(whole):
                return whole
    return None


def is_absolute(path: str) -> bool:
    """Return whether the path has a drive and starts at its root, or is a UNC path."""
    return bool(re.match(r"[A-Za-z]:[\\/]", path)) or path.startswith("\\\\")


def join(directory: str, name: str) -> str:
    if is_absolute(name):
        return name.replace("/", "\\")
    return directory.rstrip("\\/") + "\\" + name.replace("/", "\\")


def environment_block(variables: Mapping[str, str]) -> str:
    """Return the environment block: NAME=value and a NUL for each variable, sorted by upper-case name, and a final NUL.
    Raise ValueError for two names that differ only in case, which are equal on Windows, and for names and values that
    cannot be in a block."""
    seen: dict[str, str] = {}
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r} cannot be a variable of the environment")
        if name.upper() in seen:
            raise ValueError(f"{seen[name.upper()]} and {name} are one variable on Windows")
        seen[name.upper()] = name
    rows = [f"{seen[upper]}={variables[seen[upper]]}\0" for upper in sorted(seen)]
    return ("".join(rows) or "\0") + "\0"

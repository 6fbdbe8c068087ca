"""``mudroom hook shell DIR``: programs named like shells, whose commands run in a fork.

Rules of this file:
1. A shim decides nothing: it replaces itself by mudroom (execve(2)), so descriptors, signals and the exit code are the
   command's.
2. If mudroom or its shell is missing, it says so in one line and exits with 126.
3. Inside, SHELL is the real shell, and the shims' directory is not in PATH: there is no mudroom in a fork. If PATH
   would then be empty, which means the current directory to exec(3), the usual PATH is set.
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Sequence

from mudroom.cli.parser import make_parser, parse
from mudroom.cli.project_session import working_directory
from mudroom.cli.terminal.context import Context
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.agents.cli.hook_run import own_words
from mudroom.ext.agents.core.hook_answer import quote

SHELLS = ("bash", "sh", "zsh")
_DIRECTORIES = ("/usr/local/bin", "/usr/bin", "/bin")
_MARK = "mudroom-shell-shim"

_SCRIPT = """\
#!/bin/sh
# {mark}: its commands run in a fork of the project of the current directory.
for program in {program} {shell}; do
    [ -x "$program" ] && continue
    echo "{name}: $program is missing, so nothing is run (mudroom hook shell writes this file)" >&2
    exit 126
done
fork=${{MUDROOM_FORK:-{fork}}}
path=:$PATH:
while case $path in *:{directory}:*) ;; *) false;; esac; do
    path=${{path%%:{directory}:*}}:${{path#*:{directory}:}}
done
path=${{path#:}} PATH=${{path%:}} SHELL={shell}
PATH=${{PATH:-/usr/local/bin:/usr/bin:/bin}}
export PATH SHELL
words=
for word; do
    case $word in -i|-l|-il|-li|--login) ;; *) words=1;; esac
done
[ -n "$words" ] || [ ! -t 0 ] || exec {words} shell --fork "$fork"
exec {words} exec --quiet --fork "$fork" -- {shell} "$@"
"""


def write_shells(words: Sequence[str], fork: str | None, context: Context) -> int:
    args = _arguments(words, fork)
    if not args.directory:
        raise UsageError("DIR is empty", "is a variable of the shell unset? mudroom hook shell ~/shims/agent")
    directory = os.path.realpath(os.path.join(working_directory(), os.fsencode(args.directory)))
    name = os.path.basename(directory).decode("ascii", "replace")
    fork = args.fork or "".join(c if c.isalnum() and c.isascii() else "-" for c in name).strip("-")[:40] or "shell"
    try:
        text = directory.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{show(directory)} is not UTF-8", "name another directory") from None
    if ":" in text or "\n" in text:
        raise UsageError(f"{show(directory)} cannot be an entry of PATH", "name another directory")
    try:
        os.makedirs(directory, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{show(directory)} is not a directory", "name another one") from None
    written = [path for path in (_write(shell, text, fork) for shell in SHELLS) if path]
    if not written:
        raise UsageError("no shell is installed in " + ", ".join(_DIRECTORIES), "install bash, or dash")
    if context.as_json:
        context.terminal.json({"schema": "mudroom.shim/1", "fork": fork, "shells": written})
        return 0
    for path in written:
        context.terminal.out(path)
    context.terminal.say(f"SHELL={quote(written[0])} COMMAND: its commands run in the fork {fork}, or in $MUDROOM_FORK")
    return 0


def _arguments(words: Sequence[str], fork: str | None) -> argparse.Namespace:
    parser = make_parser("hook shell", "write shells whose commands run in a fork")
    parser.add_argument(
        "directory", metavar="DIR", help="where; made if need be. Not in a project, whose forks see it, too"
    )
    parser.add_argument(
        "--fork", metavar="NAME", default=fork, help="if MUDROOM_FORK is not set; default: the name of DIR"
    )
    return parse(parser, words, in_order=False)


def _write(shell: str, directory: str, fork: str) -> str:
    """Write a shim and return its path; empty if that shell is not installed. Raise UsageError if a file that is not
    mudroom's has its name."""
    places = (f"{place}/{shell}" for place in _DIRECTORIES)
    real = next((place for place in places if os.access(place, os.X_OK) and os.path.dirname(place) != directory), "")
    if not real:
        return ""
    words = own_words()
    script = _SCRIPT.format(
        mark=_MARK, name=shell, program=quote(words[0]), words=" ".join(map(quote, words)), shell=quote(real),
        fork=quote(fork), directory=quote(directory),
    )  # fmt: skip
    path = f"{directory}/{shell}"
    _require_ours(path)
    beside = f"{path}.{os.getpid()}.mudroom"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o755)
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(script)
    os.replace(beside, path)
    return path


def _require_ours(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{path} is there already ({error.strerror})", "name another directory") from None
    with open(descriptor, "rb") as stream:
        ours = stat.S_ISREG(os.fstat(descriptor).st_mode) and _MARK.encode() in stream.read(1 << 12)
    if not ours:
        raise UsageError(f"{path} is there already and not mudroom's", "name another directory")

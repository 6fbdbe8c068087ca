"""What becomes of each kind of metadata: the table behind docs/evidence/METADATA.md and tests/session/test_metadata.py.

``python tests/metadata_table.py`` writes the document. No test is here.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

DOCUMENT = Path(__file__).resolve().parent.parent / "docs/evidence/METADATA.md"


class Row(NamedTuple):
    what: str
    script: str
    """Run by sh(1) in a directory of its own with the file ``f`` (with the xattr ``user.old``), the directory ``d``
    with ``d/a``, and the link ``l`` to ``f``."""
    look: str
    """Prints what the metadata is now."""
    shown: str = ""
    """The flag or verb of the change, or words of the remark; empty if nothing is said."""
    lands: str = "yes"
    """What the project has after an apply, in words. An undo restores what was, in every row."""
    found: str = ""
    """What ``look`` prints after the apply; empty: as it prints in the command's view if it lands, else as before."""
    copied: str = ""
    """What lands from a staged copy, if it is something else."""
    found_copied: str | None = None
    """What ``look`` prints then; None: unlike what it prints in the command's view."""


STAYS = "the project's file stays as it is"


class Replaced(NamedTuple):
    """Metadata of a project's file that a command rewrites."""

    what: str
    before: str
    """Run by sh(1) in a directory of its own with the file ``f``, before the fork is made. Empty if not every file
    system, or root, can do it: tests/core/tree/test_landing_form.py has the words."""
    look: str
    """Prints what the metadata is now; empty if that depends on the command."""
    shown: str = ""
    """A flag, or words of the remark beside the change; empty if nothing is said."""
    kept: str = "kept"
    """What the new file has, in words. An undo and a redo restore what was, in every row."""
    after: str | None = None
    """What ``look`` prints after the apply; None: what it printed before."""
    root: bool = False
    """Whether only root can set it."""


FUNCTIONS = """
acl() { "$PYTHON" -I -S -c 'import os, struct, sys
path, name, *given = sys.argv[1:]
given = given or f"1:6:-1 2:6:{os.getuid()} 4:4:-1 16:6:-1 32:4:-1".split()
given = [map(int, each.split(":")) for each in given]
entries = [struct.pack("<HHI", tag, bits, who & 0xFFFFFFFF) for tag, bits, who in given]
os.setxattr(path, "system.posix_acl_" + name, struct.pack("<I", 2) + b"".join(entries))' "$@"; }
grants() { "$PYTHON" -I -S -c 'import os, struct, sys
for path in sys.argv[1:]:
    for name in sorted(name for name in os.listxattr(path) if "posix_acl" in name):
        entries = struct.iter_unpack("<HHI", os.getxattr(path, name)[4:])
        print(name, [entry for entry in entries if entry[0] in (2, 4, 8)])
print("end")' "$@"; }
capability() { "$PYTHON" -I -S -c 'import os, struct, sys
os.setxattr(sys.argv[1], "security.capability", struct.pack("<5I", 0x2000001, 1 << 10, 0, 0, 0))' "$@"; }
setx() { "$PYTHON" -I -S -c 'import os, sys; os.setxattr(sys.argv[1], sys.argv[2], b"v")' "$@"; }
delx() { "$PYTHON" -I -S -c 'import os, sys; os.removexattr(*sys.argv[1:])' "$@"; }
getx() { "$PYTHON" -I -S -c 'import os, sys
names = sorted(name for name in os.listxattr(sys.argv[1]) if "overlay" not in name)
print({name: os.getxattr(sys.argv[1], name) for name in names})' "$@"; }
"""
"""Of the shell. ``$PYTHON``: the interpreter. A list names the user alone: a sandbox has no other ids."""

ROWS = (
    Row("permissions of a file", "chmod 640 f", "stat -c %a f", "mode"),
    Row("executable bit", "chmod +x f", "stat -c %a f", "mode"),
    Row("permissions of a directory", "chmod 750 d", "stat -c %a d", "mode"),
    Row(
        "write permission for others, new file",
        "echo x > n; chmod 666 n",
        "stat -c %a n",
        "reduced-mode",
        "without it",
        "644",
    ),
    Row(
        "write permission for others, new directory",
        "mkdir n; chmod 777 n",
        "stat -c %a n",
        "reduced-mode",
        "without it",
        "755",
    ),
    Row("set-user-ID", "chmod u+s f", "stat -c %a f", "set-user-ID", "no"),
    Row("set-group-ID of a new file", "echo x > n; chmod 2755 n", "stat -c %a n", "reduced-mode", "without it", "755"),
    Row("sticky bit", "chmod +t d", "stat -c %a d", "sticky bit", "no"),
    Row(
        "owner, group",
        "chown 12345 f; chgrp 12345 f; true",
        "stat -c '%u %g' f",
        "",
        "no: the kernel refuses ids that the sandbox does not have",
    ),
    Row("user xattr", "setx f user.k", "getx f", "xattr"),
    Row("user xattr removed", "delx f user.old", "getx f", "xattr"),
    Row("user xattr of a new file", "echo x > n; setx n user.k", "getx n", "added"),
    Row("user xattr of a directory", "setx d user.k", "getx d", "", "no"),
    Row(
        "user xattr of a new directory",
        "mkdir n; setx n user.k",
        "getx n",
        "added",
        copied="without it",
        found_copied="{}",
    ),
    Row(
        "security and trusted xattrs, capabilities",
        "setx f security.k; setx f trusted.k; true",
        "getx f",
        "",
        "no: the sandbox may not set them",
    ),
    Row(
        "access control list of a new file",
        "echo x > n; acl n access",
        "stat -c %a n; grants n",
        "an access control list in the fork, which is not applied",
        "without it",
        "644\nend",
    ),
    Row("access control list", "acl f access", "stat -c %a f; grants f", "an access control list in the fork", "no"),
    Row(
        "default access control list of a new directory",
        "mkdir n; acl n default",
        "grants n",
        "a default access control list in the fork, which is not applied",
        "without it",
        "end",
    ),
    Row("default access control list", "acl d default", "grants d", "a default access control list in the fork", "no"),
    Row(
        "new directory that its owner may not read",
        "mkdir -p n/in; echo x > n/in/x; chmod 0 n/in; chmod 0 n",
        "stat -c %a n",
        "so that you can read it",
        "with r and x for the owner",
        "500",
    ),
    Row(
        "directory closed to its owner",
        "chmod 0 d",
        "stat -c %a d",
        "so that you can read it",
        "with r and x for the owner",
        "500",
    ),
    Row("mtime alone", "touch -d @86400 f", "stat -c %Y f", "", "no: a touched file is no change"),
    Row("mtime of a changed file", "echo more >> f; touch -d @86400 f", "stat -c %Y f", "content"),
    Row("mtime of a new file", "echo x > n; touch -d @86400 n", "stat -c %Y n", "added"),
    Row(
        "mtime of a new directory",
        "mkdir n; touch -d @86400 n",
        "stat -c %Y n",
        "added",
        copied="with the time of the apply",
    ),
    Row("mtime of a directory alone", "touch -d @86400 d", "stat -c %Y d", "", "no"),
    Row(
        "hard links between new files",
        "echo x > n; ln n m",
        "stat -c %h n m",
        "added",
        copied="as copies",
        found_copied="1\n1",
    ),
    Row("hard link to a file that was there", "ln f n", "stat -c %h f n", "added", "as a copy", "1\n1"),
    Row("symbolic link", "ln -s f n", "readlink n", "added"),
    Row("target of a symbolic link", "ln -sfn d l", "readlink l", "content"),
    Row("symbolic link out of the project", "ln -s /etc/passwd n", "readlink n", "leads-outside"),
    Row("hole", "truncate -s 1M n", "stat -c '%s %b' n", "added"),
    Row("empty directory", "mkdir n", "test -d n && echo there", "added"),
    Row("name with a line feed", "echo x > 'a\nb'", "ls -b", "added"),
    Row("change of case", "mv f F", "ls", "renamed"),
    Row("file becomes a directory", "rm f; mkdir f; echo x > f/x", "ls f", "type"),
    Row("directory becomes a link", "rm -r d; ln -s f d", "readlink d", "type"),
    Row(
        "socket",
        """"$PYTHON" -I -S -c 'import socket; socket.socket(socket.AF_UNIX).bind("n")'""",
        "test -S n && echo there",
        "cannot be applied",
        "no",
    ),
    Row("fifo", "mkfifo n", "test -p n && echo there", "cannot be applied", "no"),
    Row("flags of chattr(1)", "chattr +dA f; true", "lsattr f 2> /dev/null | cut -d' ' -f1", "", "no"),
    Row(
        "flags of chattr(1) of a new file",
        "echo x > n; chattr +dA n; true",
        "lsattr n 2> /dev/null | cut -d' ' -f1 | tr -dc dA",
        "added",
        copied="without them",
        found_copied="",
    ),
)
"""Birth times and access times are not in it: no program sets a birth time, and an access time is read by few."""

REPLACED = (
    Replaced("access control list", "acl f access", "grants f"),
    Replaced("access control list that forbids", "acl f access 1:6:-1 2:0:65534 4:4:-1 16:4:-1 32:4:-1", "grants f"),
    Replaced("owner", "chown 12345 f; chmod 666 f", "stat -c %u f", kept="kept by root; otherwise named", root=True),
    Replaced(
        "group", "chgrp 12345 f", "stat -c %g f", kept="kept in a group of the user's; otherwise named", root=True
    ),
    Replaced("user xattr", "setx f user.k", "", "xattr", "as the command leaves it"),
    Replaced("trusted xattr", "setx f trusted.k", "getx f", kept="kept by root, who alone sees it", root=True),
    Replaced("security xattr", "setx f security.k", "getx f", kept="kept by root; otherwise named", root=True),
    Replaced(
        "file capabilities", "capability f", "getx f", "file capabilities", "no, as with write(2)", "{}", root=True
    ),
    Replaced("flags of chattr(1): s, u, c, S, d, A, m, t", "chattr +dAS f", "lsattr f | cut -d' ' -f1"),
    Replaced("flags of chattr(1): j, C, x, V", "", "", "the flags jC of chattr(1)", "no"),
    Replaced("immutable", "chattr +i f", "lsattr f | cut -c5", "is immutable", STAYS, root=True),
    Replaced("append-only", "chattr +a f", "lsattr f | cut -c6", "is append-only", STAYS, root=True),
    Replaced("hard links", "ln f g", "", "has 2 hard links", "no: the other names keep the old content"),
    Replaced("set-user-ID", "chmod 4755 f", "stat -c %a f", "mode", "no, as with write(2)", "755"),
)
"""What a project's file has that a command cannot see, or loses when it writes a new file in its place."""

_HEAD = """# Metadata

Made from `tests/metadata_table.py` by `python tests/metadata_table.py`. The rules are in
`src/mudroom/core/tree/landing_form.py`. Each row is done by a command in a fork, shown, applied, undone and applied
again by a test, with an overlay, with a staged copy and without namespaces, as an ordinary user and as root. An undo
restores what was, in every row.

"Shown" is the verb or the flag of the change, or words of the remark beside it. Where it is empty, nothing is said.

## What a command does

| metadata | shown | lands | from a staged copy, or after a checkpoint |
| --- | --- | --- | --- |
"""
_SECOND = """
A new entry in a directory with a default access control list, or with set-group-ID, gets that list and that group, as
by open(2) and mkdir(2).

## What the project's file had

A command rewrites a file, in place or by a new file with its name. A command cannot see most of this. A file that is
renamed keeps the same.

| metadata of the project's file | shown | the new file has it |
| --- | --- | --- |
"""


def document() -> str:
    first = "".join(f"| {row.what} | {row.shown} | {row.lands} | {row.copied or 'the same'} |\n" for row in ROWS)
    return _HEAD + first + _SECOND + "".join(f"| {row.what} | {row.shown} | {row.kept} |\n" for row in REPLACED)


if __name__ == "__main__":
    DOCUMENT.write_text(document())

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


FUNCTIONS = """
setx() { "$PYTHON" -c 'import os, sys; os.setxattr(sys.argv[1], sys.argv[2], b"v")' "$@"; }
delx() { "$PYTHON" -c 'import os, sys; os.removexattr(*sys.argv[1:])' "$@"; }
getx() { "$PYTHON" -c 'import os, sys
names = sorted(name for name in os.listxattr(sys.argv[1]) if "overlay" not in name)
print({name: os.getxattr(sys.argv[1], name) for name in names})' "$@"; }
"""
"""Of the shell. ``$PYTHON``: the interpreter."""

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
    Row(
        "user xattr of a new file",
        "echo x > n; setx n user.k",
        "getx n",
        "added",
    ),
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
    Row("fifo", "mkfifo n", "test -p n && echo there", "cannot be applied", "no"),
    Row("flags of chattr(1)", "chattr +dA f; true", "lsattr f 2> /dev/null | cut -d' ' -f1", "", "no"),
)
"""Birth times and access times are not in it: no program sets a birth time, and an access time is read by few."""

_HEAD = """# Metadata

Made from `tests/metadata_table.py` by `python tests/metadata_table.py`. Each row is done by a command in a fork, shown,
applied and undone by a test, with an overlay and with a staged copy, as an ordinary user and as root. An undo restores
what was, in every row.

"Shown" is the verb or the flag of the change, or words of the remark beside it. Where it is empty, nothing is said.

| metadata | shown | lands | from a staged copy, or after a checkpoint |
| --- | --- | --- | --- |
"""


def document() -> str:
    return _HEAD + "".join(f"| {row.what} | {row.shown} | {row.lands} | {row.copied or 'the same'} |\n" for row in ROWS)


if __name__ == "__main__":
    DOCUMENT.write_text(document())

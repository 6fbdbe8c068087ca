"""docs/evidence/FILESYSTEMS.md, made of the table of the story (``file_systems.py``).

``python tests/systems/systems_document.py`` writes it. No test is here.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parent)]

from file_systems import TABLE

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/evidence/FILESYSTEMS.md"

HEAD = """\
# File systems

Made by `python tests/systems/systems_document.py` of the table in `tests/systems/file_systems.py`; `dev/systems` plays
every cell.

A model story runs on each file system: forks, commands that change, remove, rename and link files, directories that
become links, file tools, edits of the user's with size and time kept, checkpoints, rollback, apply with conflicts,
resolve, undo, redo, discard. After each step the project, and the view of a command, are compared with a plain copy on
which the same was done. *Project*: the project is there and the state on ext4. *State*: the other way round. *Both*:
both are there.

| file system | peculiar | project | state | both |
| --- | --- | --- | --- | --- |
"""

NOTES = """
*In a copy*: no kernel overlay can have its upper layer there. The command's first note says so; it works in a copy of
the project.

1. Hard links that a command has made can land as separate files: the driver keeps the number of links for a second.
2. A file that was written less than three seconds before a command conflicts with the command's change: its
   stamp does not tell whether it was written before or after. Nothing is overwritten.
3. *does not keep permissions*: others could read the vault, and every file of a fork would be executable. Set
   `MUDROOM_STATE` to a directory on another file system.
4. *cannot keep what a fork deletes*: fuse-overlayfs takes the marks of deleted files for its own. Set `MUDROOM_STATE`
   to a directory on a volume.
5. Expected; the machine that played the other cells had no kernel with it.

On a full disk, or one without free inodes, a verb is done or refused in one line, and goes on when there is room.
Where the blocks of a file system are smaller than a page (ext4 of less than 512 MB), a full disk can end a verb by
SIGBUS in SQLite, which maps a file with holes: repeat it.

A file system that the machine cannot mount is left out by name when the table is played: ext4 with casefold and vfat
are not in every kernel. NFS is played by its peculiarities (bindfs), without a server.
"""


def document() -> str:
    rows = (f"| {row.name} | {row.what} | {' | '.join(cell.text for cell in row.cells)} |" for row in TABLE)
    return HEAD + "\n".join(rows) + "\n" + NOTES


if __name__ == "__main__":
    DOCUMENT.write_text(document())

"""Normal form for entries that land in the user's project: kinds, modes, owners and link targets. Pure.

    kind                          lands
    ----------------------------  -----------------------------------------------------------------------------
    file, directory, symlink      yes
    fifo, socket, device          no: a remark names the path

    mode bits                     land
    ----------------------------  -----------------------------------------------------------------------------
    set-user-ID, set-group-ID     file: only if the project's file has the bit and its content is unchanged
                                  directory: if the project's directory has the bit; set-group-ID also if the
                                  directory is new in one that has it, where mkdir(2) sets it
    sticky                        only if the project's entry has it
    write permission for others   only if the project's entry has it; otherwise the group's is dropped with it,
                                  as with the umask 022. A group's write permission alone lands (umask 002)
    other permission bits         yes

A changeset holds entries in this form (``stage/originals/collection.py``), so previews, merges, applies, undo and redo
need no rule for it. The fork keeps the entry as the command left it: ``is_reviewed`` compares the two.

A file attribute lands if its name begins with ``user.`` and not with ``user.overlay.`` (``stage/xattr.py``).
"""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.tree.entry import Entry, Kind, same_stamp

STAYS = "which cannot be applied: it stays as it is"
"""The end of a remark about a project file that has become a fifo, socket or device."""
LANDING_KINDS: frozenset[Kind] = frozenset(("file", "directory", "symlink"))

REDUCED, LEADS_OUT, OWNER = "reduced-mode", "leads-outside", "owner"
"""Flags: the mode lands without bits that the fork's entry has; the link leads out of the project; the owner is neither
the user nor the owner of the project's entry."""

S_ISUID, S_ISGID, S_ISVTX, S_IWGRP, S_IWOTH = 0o4000, 0o2000, 0o1000, 0o020, 0o002
"""As in inode(7)."""
_SET_ID, _SHARED = S_ISUID | S_ISGID, S_IWGRP | S_IWOTH
_REDUCIBLE = _SET_ID | S_ISVTX | _SHARED
_BITS = (
    (S_ISUID, "set-user-ID"),
    (S_ISGID, "set-group-ID"),
    (S_ISVTX, "sticky bit"),
    (_SHARED, "write permission for others"),
)
_MOST_LINKS = 40
"""Links that the kernel follows in one path: path_resolution(7)."""
_USUAL: dict[str, frozenset[int]] = {
    "file": frozenset((0o600, 0o640, 0o644, 0o660, 0o664)),
    "directory": frozenset((0o700, 0o750, 0o755, 0o770, 0o775)),
}
_EXECUTABLE = frozenset((0o700, 0o750, 0o755, 0o770, 0o775))


def landing_entry(staged: Entry, base: Entry | None, above: Entry | None = None) -> Entry:
    """Return the entry as it lands. ``base``: the project's entry. ``above``: the project's directory that contains a
    new directory."""
    if staged.kind == "symlink" or not staged.mode & _REDUCIBLE:
        return staged
    kept = base.mode & _REDUCIBLE if base is not None and base.kind == staged.kind else 0
    if staged.kind == "directory" and base is None and above is not None:
        kept |= above.mode & S_ISGID
    left_out = _REDUCIBLE & ~_SHARED & ~kept
    if staged.mode & S_IWOTH & ~kept:
        left_out |= _SHARED & ~kept
    return staged._replace(mode=staged.mode & ~left_out)


def with_new_content(staged: Entry) -> Entry:
    """Return the entry for a file with the fork's content: a write clears set-ID bits (write(2), inode(7))."""
    return staged._replace(mode=staged.mode & ~_SET_ID) if staged.mode & _SET_ID else staged


def is_reviewed(reviewed: Entry | None, actual: Entry | None) -> bool:
    """Return whether ``actual``, an entry in the fork, is the file whose normal form was ``reviewed``."""
    if same_stamp(reviewed, actual):
        return True
    if reviewed is None or actual is None or reviewed.mode & ~actual.mode:
        return False
    return not actual.mode & ~reviewed.mode & ~_REDUCIBLE and same_stamp(reviewed, actual._replace(mode=reviewed.mode))


def bits_left_out(before: int, after: int) -> str:
    """Return the bits in the mode ``before`` that ``after`` lacks, in words."""
    return ", ".join(words for bits, words in _BITS if before & ~after & bits)


def unusual_mode(entry: Entry) -> str:
    """Return a new entry's mode in words; empty if a umask gives this mode to files or directories."""
    if entry.kind == "symlink" or entry.mode in _USUAL.get(entry.kind, ()):
        return ""
    return "executable" if entry.kind == "file" and entry.mode in _EXECUTABLE else f"mode {entry.mode:03o}"


def leads_out(path: bytes, target: bytes, look: Callable[[bytes], Entry | None], project: bytes = b"") -> bool:
    """Return whether the symbolic link at ``path`` leads out of the project, also by other links, and also if nothing
    is there. ``look``: returns a path's entry in the fork over the project. ``project``: its absolute path.

    True if it cannot be told: too many links, or a directory that may not be read.
    """
    at, left, links = path.split(b"/")[:-1], [target], 0
    while left:
        part = left.pop()
        if part.startswith(b"/"):
            inside = _inside(part, project)
            if inside is None:
                return True
            at, part = [], inside
        if b"/" in part:
            left += reversed(part.split(b"/"))
        elif part == b"..":
            if not at:
                return True
            at.pop()
        elif part not in (b"", b"."):
            try:
                entry = look(b"/".join((*at, part)))
            except OSError:
                return True
            if entry is None or entry.kind != "symlink":
                at.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                return True
            left.append(entry.target)
    return False


def _inside(target: bytes, project: bytes) -> bytes | None:
    """Return the part of an absolute target below the project's path; None if it is not below."""
    parts, top = ([part for part in path.split(b"/") if part not in (b"", b".")] for path in (target, project))
    if not top or parts[: len(top)] != top:
        return None
    return b"/".join(parts[len(top) :])

"""Normal form for entries that land in the user's project: kinds, modes, owners, attributes and link targets. Pure.

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
    a directory's r and x for     always, so that the user can read it, unless the project's directory lacks them
    its owner

A changeset holds entries in this form (``stage/originals/collection.py``), so previews, merges, applies, undo and redo
need no rule for it. The fork keeps the entry as the command left it: ``is_reviewed`` compares the two.

Attributes and the flags of chattr(1) are in the tables ``ATTRIBUTES`` and ``CHATTR``. A file is rewritten by a new file
that takes its place, so the new one is given what they call kept; the owner and the group too, as far as the user may
(chown(2)). What is not kept, and what the fork's entry has and does not land, is in a remark. ``stage/form.py`` reads
these, and ``vault/apply/form.py`` gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mudroom.core.tree.entry import Entry, Kind, same_stamp
from mudroom.typing import NamedTuple

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
_READABLE = 0o500


class AttributeRule(NamedTuple):
    """A row of ``ATTRIBUTES``."""

    begins: str
    """Of the name: xattr(7)."""
    words: str
    """Name for the reviewer."""
    lands: bool = False
    """Whether the fork's value lands."""
    is_kept: bool = False
    """Whether a new file gets the value of the project's file that it replaces, or whose new name it has."""
    by_root: bool = False
    """Whether only root may set it. Then no command can."""


ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
"""Access control lists: acl(5)."""
ATTRIBUTES = (
    AttributeRule("user.overlay.", ""),
    AttributeRule("user.", "", lands=True),
    # in a directory with a default list, a new entry gets that one, as by open(2) and mkdir(2)
    AttributeRule(ACCESS, "an access control list", is_kept=True),
    AttributeRule(DEFAULT, "a default access control list"),
    # write(2) removes them, too: they are a statement about the content
    AttributeRule("security.capability", "file capabilities"),
    AttributeRule("security.ima", "a signature of its content", by_root=True),
    AttributeRule("security.evm", "a signature of its metadata", by_root=True),
    AttributeRule("security.selinux", "a security label", is_kept=True),
    AttributeRule("security.", "a security label", is_kept=True, by_root=True),
    AttributeRule("trusted.", "an attribute of root's", is_kept=True, by_root=True),
    AttributeRule("", "an attribute of the file system", is_kept=True),
)
"""The first row whose ``begins`` fits holds for an attribute."""


class FlagRule(NamedTuple):
    """A row of ``CHATTR``."""

    bit: int
    """As in linux/fs.h."""
    words: str
    is_kept: bool = False
    blocks: bool = False
    """Whether the file cannot be replaced."""


CHATTR = (
    FlagRule(0x1, "s", is_kept=True),
    FlagRule(0x2, "u", is_kept=True),
    FlagRule(0x4, "c", is_kept=True),
    FlagRule(0x8, "S", is_kept=True),
    FlagRule(0x40, "d", is_kept=True),
    FlagRule(0x80, "A", is_kept=True),
    FlagRule(0x400, "m", is_kept=True),
    FlagRule(0x8000, "t", is_kept=True),
    FlagRule(0x10, "immutable", blocks=True),
    FlagRule(0x20, "append-only", blocks=True),
    FlagRule(0x4000, "j"),
    FlagRule(0x100000, "V"),
    FlagRule(0x800000, "C"),
    FlagRule(0x2000000, "x"),
)
"""Flags of a file that a user sets: chattr(1). Those that are not kept cannot be set on a file with content, or only by
root."""
KEPT_FLAGS = sum(row.bit for row in CHATTR if row.is_kept)

_NAMED = (2, 4, 8)
_GROUP, _MASK = 4, 16
"""Tags of a list: ACL_USER, ACL_GROUP_OBJ and ACL_GROUP, ACL_MASK in linux/posix_acl.h."""
_MOST_LINKS = 40
"""Links that the kernel follows in one path: path_resolution(7)."""
_USUAL: dict[str, frozenset[int]] = {
    "file": frozenset((0o600, 0o640, 0o644, 0o660, 0o664)),
    "directory": frozenset((0o700, 0o750, 0o755, 0o770, 0o775)),
}
_EXECUTABLE = frozenset((0o700, 0o750, 0o755, 0o770, 0o775))


def attribute_rule(name: str) -> AttributeRule:
    return next(row for row in ATTRIBUTES if name.startswith(row.begins))


def is_left(name: str) -> bool:
    """Return whether the attribute may be on an entry in the fork by a command's doing, and does not land."""
    rule = attribute_rule(name)
    return not (rule.lands or rule.by_root or name == "security.selinux")


def not_applied(attribute: str) -> str:
    """Return the remark about an attribute of the fork's that does not land."""
    return f"has {attribute_rule(attribute).words} in the fork, which is not applied"


def is_kept(name: str) -> bool:
    """Return whether a new file gets the attribute of the file that it replaces, as far as the user may set it."""
    return attribute_rule(name).is_kept


def lost_in_words(names: Iterable[str], flags: int, *, is_root: bool) -> list[str]:
    """Return what a project's file has, by these names and flags, and its replacement has not."""
    rules = [attribute_rule(name) for name in names]
    lost = [row.words for row in rules if row.words and not row.lands and not _is_kept(row, is_root=is_root)]
    bits = "".join(row.words for row in CHATTR if row.bit & flags and not (row.is_kept or row.blocks))
    return [*dict.fromkeys(lost), *([f"the flags {bits} of chattr(1)"] if bits else [])]


def _is_kept(rule: AttributeRule, *, is_root: bool) -> bool:
    return rule.is_kept and (is_root or not rule.by_root)


def blocking_flag(flags: int) -> str:
    """Return the flag that keeps a file from being replaced, in words; empty if it has none."""
    return next((row.words for row in CHATTR if row.blocks and row.bit & flags), "")


def _list_entries(content: bytes) -> list[tuple[int, int, bytes]]:
    """Return tag, permissions and id of each entry in a list as xattrs hold it (linux/posix_acl_xattr.h)."""
    entries = (content[at : at + 8] for at in range(4, len(content) - 7, 8))
    return [(int.from_bytes(each[:2], "little"), each[2], each[4:]) for each in entries]


def grants(content: bytes) -> list[tuple[int, int, bytes]]:
    """Return the entries in a list that no mode shows: of named users and groups, and of the group below the mask.
    Empty if the list is no more than a mode."""
    entries = _list_entries(content)
    return [entry for entry in entries if entry[0] in _NAMED] if any(tag == _MASK for tag, *_ in entries) else []


def without_list(mode: int, content: bytes) -> int:
    """Return the mode of a file that loses its list: the group's bits are the mask's before, and its own after."""
    bits = {tag: bits for tag, bits, _id in _list_entries(content) if tag in (_GROUP, _MASK)}
    return mode & ~0o070 | (bits.get(_GROUP, 0) & bits.get(_MASK, 7) & 7) << 3


def landing_entry(staged: Entry, base: Entry | None, above: Entry | None = None) -> Entry:
    """Return the entry as it lands. ``base``: the project's entry. ``above``: the project's directory that contains a
    new directory."""
    if staged.kind == "directory" and staged.mode & _READABLE != _READABLE:
        is_there = base is not None and base.kind == "directory"
        staged = staged._replace(mode=staged.mode | (_READABLE & base.mode if is_there and base else _READABLE))
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
    """Return whether ``actual``, an entry in the fork, can be the file whose normal form was ``reviewed``. It is given
    the reviewed mode when it lands."""
    if same_stamp(reviewed, actual):
        return True
    if reviewed is None or actual is None:
        return False
    added = reviewed.mode & ~actual.mode
    if added and (reviewed.kind != "directory" or added & ~_READABLE):
        return False
    left_out = actual.mode & ~reviewed.mode & ~(_REDUCIBLE | 0o070)
    return not left_out and same_stamp(reviewed, actual._replace(mode=reviewed.mode))


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

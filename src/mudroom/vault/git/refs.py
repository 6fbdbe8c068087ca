"""The refs of a fork's repository, read as data: files and packed-refs, as gitrepository-layout(5) describes them."""

from __future__ import annotations

import os

from dulwich.refs import Ref, check_ref_format

from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.stage.source import Source
from mudroom.vault.git.check import is_id
from mudroom.vault.git.read import read_small, refusal

_REF_LIMIT = 4096
_PACKED_REFS_LIMIT = 64 << 20
_SYMBOLIC_LIMIT = 5  # refs.h, SYMREF_MAXDEPTH
# gitrepository-layout(5): per work tree, not in the common directory
_OWN_REFS = (b"refs/bisect/", b"refs/worktree/", b"refs/rewritten/")


class Refs:
    """``git``: directory of HEAD in the view. ``common``: directory of branches. ``id_length``: of an id in hex."""

    def __init__(self, view: Source, git: bytes, common: bytes, id_length: int) -> None:
        self._view, self._git, self._common, self._id_length = view, git, common, id_length

    def resolve(self, ref: str) -> bytes:
        """Return the object that a ref points to. Raise UsageError if there is none."""
        target = os.fsencode(ref)
        if is_id(target) and len(target) == self._id_length:
            return target
        whole = target == b"HEAD" or target.startswith(b"refs/")
        names = [target] if whole else [b"refs/heads/" + target, b"refs/tags/" + target]
        for start in names:
            name = start
            for _step in range(_SYMBOLIC_LIMIT):
                value = self._read(name)
                if value is None:
                    break
                if not value.startswith(b"ref:"):
                    if not is_id(value) or len(value) != self._id_length:
                        raise refusal(f"{show(name)} does not name an object")
                    return value
                name = value[4:].strip()
            else:
                raise refusal(f"{show(start)} leads in a circle, or too far")
            if name != start:
                raise UsageError(f"{show(name)}, to which {show(start)} of the fork leads, has no commit yet")
        raise UsageError(
            f"the fork's repository has no {show(target)}", "give the name of a branch, or none for its HEAD"
        )

    def _read(self, name: bytes) -> bytes | None:
        is_long = any(len(part) > 250 for part in name.split(b"/"))
        if name != b"HEAD" and (not name.startswith(b"refs/") or not check_ref_format(Ref(name)) or is_long):
            raise refusal(f"{show(name[:80])} is not the name of a ref")
        own = name == b"HEAD" or name.startswith(_OWN_REFS)
        path = (self._git if own else self._common) + b"/" + name
        entry = self._view.look(path)
        if entry is not None and entry.kind != "directory":
            value = read_small(self._view, path, _REF_LIMIT)
            return value.strip() if value is not None else None
        if name == b"HEAD":
            return None
        packed = read_small(self._view, self._common + b"/packed-refs", _PACKED_REFS_LIMIT) or b""
        end = packed.find(b" " + name + b"\n")
        return packed[packed.rfind(b"\n", 0, end) + 1 : end] if end >= 0 else None

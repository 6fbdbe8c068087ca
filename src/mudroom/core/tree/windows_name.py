"""Names that a changeset may not bring onto Windows: they would be another file there, a device, or nothing. Pure.

A fork can be written on Linux, or by a program that goes past Win32 with ``\\\\?\\`` paths; what it holds is judged
before it lands. Sources: Microsoft, "Naming Files, Paths, and Namespaces" and "File Streams"; for short names of
protected directories CVE-2019-1353, for UNC targets that a mere look at them authenticates to a server.

1. A name stands for itself alone: no drive, stream, device, short name or trailing dot makes it another file's.
2. What cannot be told is refused: ``ABCDEF~1`` may be the short name of a file that lies there under a longer one.
3. A symbolic link may lead only downwards or sideways in the project, and never to a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mudroom.core.tree.path import show

LONGEST_NAME, LONGEST_PATH = 255, 32_000
"""UTF-16 units. NT takes 32,767 for a whole path; the rest is left for the directory in which the project lies."""

_FORBIDDEN = re.compile(r'[\x00-\x1f<>:"|?*\\]')
_WHY = {
    ":": "':' names a drive or a stream of another file",
    "\\": "'\\' separates directories",
}
_DEVICE = re.compile(
    r"(CON|PRN|AUX|NUL|CLOCK\$|CONIN\$|CONOUT\$|(COM|LPT)[0-9\u00b9\u00b2\u00b3])[ ]*(\.|$)", re.IGNORECASE
)
_SHORT = re.compile(r"[^.]{1,8}\Z", re.DOTALL)
_TILDE = re.compile(r"~[0-9]+\Z")


def why_not(path: bytes) -> str | None:
    """Why this path below a project cannot be made on Windows; None if it can."""
    for part in path.split(b"/"):
        reason = why_no_name(part)
        if reason:
            return f"{show(part)}: {reason}"
    if _units(_text(path) or "") > LONGEST_PATH:
        return f"longer than {LONGEST_PATH} characters"
    return None


def why_no_name(name: bytes) -> str | None:
    """Why one component cannot be; None if it can."""
    text = _text(name)
    if text is None:
        return "not UTF-8, and names are UTF-16 there"
    if text in ("", ".", ".."):
        return "no name"
    found = _FORBIDDEN.search(text)
    if found:
        character = found.group()
        return _WHY.get(character) or f"{show(character.encode())} cannot be in a name"
    if text[-1] in " .":
        return "a space or dot at the end is dropped: it would be another file"
    if _DEVICE.match(text):
        return "names a device, in every directory and with every extension"
    if _units(text) > LONGEST_NAME:
        return f"longer than {LONGEST_NAME} characters"
    if _is_short(text):
        return "may be the short name of another file"
    return None


def _is_short(text: str) -> bool:
    """8.3: up to eight characters that end in ~ and digits, an extension of up to three."""
    stem, _dot, extension = text.partition(".")
    return len(extension) <= 3 and "." not in extension and bool(_SHORT.match(stem) and _TILDE.search(stem))


def why_no_link(path: bytes, target: bytes) -> str | None:
    """Why a symbolic link at ``path`` with this target cannot be made; None if it can."""
    text = _text(target)
    if text is None:
        return "its target is not UTF-8"
    plain = text.replace("\\", "/")
    if plain.startswith("//"):
        return "its target is a server's or a device's: looking at it would tell your credentials to whoever it names"
    if plain.startswith("/"):
        return "its target is absolute"
    if re.match(r"[^/]*:", plain):
        return "its target names a drive or a stream"
    depth = path.count(b"/")
    for part in plain.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return "its target leads out of the project"
        reason = None if part in ("", ".", "..") else why_no_name(part.encode("utf-8", "surrogatepass"))
        if reason:
            return f"its target, {show(part.encode('utf-8', 'surrogatepass'))}: {reason}"
    return None


def fold(path: bytes) -> str:
    """Equal for two names that NTFS may take for one. It compares by a table of single upper-case characters
    ($UpCase), which a volume keeps from when it was made; this folds at least as much."""
    text = _text(path)
    if text is None:
        return path.decode("latin-1")
    return "".join(_upper(character) for character in text)


def collisions(paths: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Pairs of which the second would fall upon the first, in the order given. Directories count: ``A/x`` and ``a/y``
    are no two directories there."""
    seen: dict[str, bytes] = {}
    found: list[tuple[bytes, bytes]] = []
    for path in paths:
        parts = path.split(b"/")
        for end in range(1, len(parts) + 1):
            whole = b"/".join(parts[:end])
            first = seen.setdefault(fold(whole), whole)
            if first != whole and (first, whole) not in found:
                found.append((first, whole))
    return found


def is_named(name: bytes, protected: Iterable[bytes]) -> bool:
    """Whether a component is one of these names, or would be taken for it: by case, trailing dots, a stream, or its
    short name. For ``.git`` and ``.mudroom``, of which nothing may land by another name."""
    text = (_text(name) or name.decode("latin-1")).partition(":")[0].rstrip(" .")
    folded = fold(text.encode("utf-8", "surrogatepass"))
    for one in protected:
        plain = fold(one)
        if folded == plain:
            return True
        letters = re.sub(r"[^0-9A-Z_-]", "", plain)
        stem = _TILDE.sub("", folded)
        # GIT~1; where four of a kind exist NTFS keeps two letters and hashes the rest: GI7EBA~1
        if stem != folded and (letters.startswith(stem) or (len(stem) == 6 and stem[:2] == letters[:2])):
            return True
    return False


def _upper(character: str) -> str:
    upper = character.upper()
    return upper if len(upper) == 1 else character


def _text(name: bytes) -> str | None:
    """As os.fsdecode has it on Windows: half of a surrogate pair is a character that NTFS can keep."""
    try:
        return name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def _units(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)

"""What a mistake in a change costs: the risk of each file and of each changed block, with reasons. Pure.

1. A file's risk is that of its costliest block.
2. What the kernel's flags say (runs later, protected, secret …) comes first, whatever the content seems to be. Files of
   a lock, vendored and ignored files are flagged in great numbers: there the content and the verb decide.
3. A file that says that it is generated is believed only if it said so before.
4. Only a proof makes a block dull, and none does in a flagged file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.core.text.linediff import Block, diff_lines, split_lines
from mudroom.core.tree.change import Change
from mudroom.ext.order.core.dull import prove
from mudroom.ext.order.core.kind import Kind, kind_of, says_generated
from mudroom.ext.order.core.package_list import (
    AlikeNames,
    compare_packages,
    is_list,
    packages_of,
    popular_packages,
)
from mudroom.ext.order.core.sign import Sign, signs_of
from mudroom.ext.order.core.weakened import weakened
from mudroom.typing import Literal, NamedTuple

Risk = Literal["conflict", "remark", "later", "weakened", "code", "settings", "tests", "prose", "generated", "dull"]
RISKS: Mapping[Risk, str] = {
    "conflict": "Conflicts",
    "remark": "Your remarks, sent",
    "later": "Runs later, more rights",
    "weakened": "Weakened checks",
    "code": "Code",
    "settings": "Settings, dependencies",
    "tests": "Tests",
    "prose": "Prose",
    "generated": "Generated, vendored",
    "dull": "Changes nothing, proven",
}
"""Each risk's heading, the costliest first."""
RANKS: Mapping[Risk, int] = {risk: rank for rank, risk in enumerate(RISKS)}

_URGENT = frozenset(
    ("executes-later", "protected", "secret", "leads-outside", "reduced-mode", "owner", "mode", "type", "work-tree",
     "submodule", "new-repository")
)  # fmt: skip
_BY_KIND: Mapping[Kind, Risk] = {
    "vendored": "generated",
    "snapshots": "tests",
    "tests": "tests",
    "generated": "generated",
    "locks": "generated",
    "settings": "settings",
    "prose": "prose",
    "code": "code",
}
_HEAVY = 3
"""Weight of a sign that lifts a block of settings, prose or generated text to code."""
_LIGHT = ("another value is expected", "a snapshot is rewritten", "is deleted")
"""Ends of reasons that the purpose of a change often explains."""


class BlockRisk(NamedTuple):
    risk: Risk
    reasons: tuple[str, ...] = ()
    weight: int = 0
    """Of its signs: heavier blocks come first among those of one risk."""

    @property
    def key(self) -> tuple[int, int]:
        return RANKS[self.risk], -self.weight


class FileRisk(NamedTuple):
    risk: Risk
    reasons: tuple[str, ...] = ()
    weight: int = 0
    blocks: tuple[BlockRisk, ...] = ()
    """By number; empty if the file is not divided into blocks."""
    is_read: bool = True
    """Whether its content was examined, not only its name."""

    @property
    def key(self) -> tuple[int, int]:
        return RANKS[self.risk], -self.weight


def join_risks(blocks: Sequence[BlockRisk]) -> BlockRisk:
    """Return the risk of a hunk: that of its costliest block, with the reasons of all that are not dull."""
    first = min(blocks, key=lambda block: block.key)
    of_risk = [block for block in blocks if block.risk != "dull"] or blocks
    return first._replace(reasons=tuple(dict.fromkeys(reason for block in of_risk for reason in block.reasons)))


def rate_by_name(change: Change, tags: Sequence[str]) -> FileRisk:
    """Return a file's risk as far as its name, flags and verb tell."""
    kind = kind_of(change.path)
    flags = sorted(_URGENT.intersection(tags))
    if "conflict" in tags:
        return FileRisk("conflict", ("conflicts with the project",), is_read=False)
    if flags and not _is_listed(change, kind, tags):
        return FileRisk("later", (*([f"runs {change.runs}"] if change.runs else []), *_words(flags)), is_read=False)
    if kind == "tests" and change.staged is None and not change.moved_to:
        return FileRisk("weakened", ("a file of tests is deleted",), is_read=False)
    if "repository" in tags:
        return FileRisk("generated", ("the repository's own file: applied on request",), is_read=False)
    if "ignored" in tags:
        return FileRisk("generated", ("ignored by git",), is_read=False)
    if change.binary and kind not in ("prose", "vendored", "snapshots"):
        return FileRisk(_BY_KIND[kind], ("binary",), 1, is_read=False)
    return FileRisk(_BY_KIND[kind], is_read=False)


def _is_listed(change: Change, kind: Kind, tags: Sequence[str]) -> bool:
    """Return whether a flag counts less: a tool's own list, or new vendored and ignored files."""
    if not _URGENT.isdisjoint(set(tags) - {"executes-later"}):
        return False
    return kind == "locks" or (change.verb == "added" and (kind == "vendored" or "ignored" in tags))


def _words(flags: Sequence[str]) -> list[str]:
    told = {
        "executes-later": "",
        "mode": "permissions",
        "type": "another type of file",
        "secret": "a secret by its name or place",
    }
    return [words for flag in flags if (words := told.get(flag, flag.replace("-", " ")))]


def rate(change: Change, tags: Sequence[str], old: bytes, new: bytes) -> FileRisk:
    """Return a text file's risk by its content. ``old``, ``new``: both sides, empty for no file."""
    by_name = rate_by_name(change, tags)
    if by_name.risk == "conflict":
        return by_name._replace(is_read=True)
    lines = split_lines(old), split_lines(new)
    blocks = diff_lines(*lines)
    kind, risk = kind_of(change.path), by_name.risk
    if risk == "code" and old and says_generated(old) and says_generated(new):
        risk = "generated"
    weak = weakened(change.path, *lines, blocks) if risk != "prose" and kind not in ("locks", "vendored") else {}
    packages = _package_signs(change.path, old, new) if is_list(change.path) else ()
    is_provable = bool(old) and risk in ("code", "tests")
    dull = prove(change.path, *lines, blocks) if is_provable else {}
    rated = tuple(
        BlockRisk("dull", (dull[number],))
        if number in dull and number not in weak
        else _block(risk, kind, block, lines, weak.get(number, ()), packages)
        for number, block in enumerate(blocks)
    )
    if not rated:
        return by_name._replace(is_read=True)
    first = min(rated, key=lambda block: block.key)
    others = tuple(
        dict.fromkeys(reason for block in sorted(rated, key=lambda block: block.key) for reason in block.reasons)
    )
    reasons = (
        others if first.risk == "dull" else tuple(dict.fromkeys((*by_name.reasons, *_without_proofs(rated, others))))
    )
    return FileRisk(first.risk, reasons, first.weight, rated)


def _without_proofs(rated: Sequence[BlockRisk], reasons: Sequence[str]) -> list[str]:
    proofs = {reason for block in rated if block.risk == "dull" for reason in block.reasons}
    return [reason for reason in reasons if reason not in proofs]


def _block(
    risk: Risk,
    kind: Kind,
    block: Block,
    lines: tuple[list[bytes], list[bytes]],
    weak: tuple[str, ...],
    packages: Sequence[tuple[Sign, bytes]],
) -> BlockRisk:
    removed, added = lines[0][block.old_start : block.old_end], lines[1][block.new_start : block.new_end]
    signs = signs_of(removed, added) if risk != "prose" and kind != "locks" else ()
    named = dict.fromkeys(sign for sign, word in packages if any(word in line for line in added))
    every = (*named, *signs)
    weight = max((sign.weight for sign in every), default=0) * 10 + len(every)
    reasons = (*weak, *(sign.reason for sign in every))
    if any(not reason.endswith(_LIGHT) for reason in weak):
        weight += 15
    if weak and RANKS[risk] > RANKS["weakened"]:
        return BlockRisk("weakened", reasons, weight)
    if named and risk == "generated":
        return BlockRisk("settings", reasons, weight)
    if risk in ("settings", "generated") and any(sign.weight >= _HEAVY for sign in signs):
        return BlockRisk("code", reasons, weight)
    return BlockRisk(risk, reasons, weight)


def _package_signs(path: bytes, old: bytes, new: bytes) -> list[tuple[Sign, bytes]]:
    """Return signs of a list of packages, each with the word that its lines have."""
    before, after = packages_of(path, old), packages_of(path, new)
    if before is None or after is None:
        return [(Sign("a list of packages that cannot be read", 2), b"")]
    changes = compare_packages(before, after)
    signs: list[tuple[Sign, bytes]] = []
    known = frozenset(before) | popular_packages()
    alike = AlikeNames(known) if changes.added and before else None
    for package in changes.added if before else ():
        like = alike.of(package) if alike is not None and package not in known else ""
        word = _last(package).encode("utf-8", "replace")
        signs.append(
            (Sign(f"{package} is new, and its name is like {like}", 3) if like else Sign(f"{package} is new", 1), word)
        )
    for package in changes.moved:
        sources = ", ".join(sorted({row.source for row in after[package]} - {row.source for row in before[package]}))
        signs.append((Sign(f"{package} comes from {sources or 'its registry'}", 2), b""))
    signs += [(Sign(f"{package} has other files under the same version", 2), b"") for package in changes.altered]
    return [(Sign(_shown(sign.reason), sign.weight), word) for sign, word in signs]


def _last(package: str) -> str:
    return package.rpartition("/")[2]


def _shown(text: str) -> str:
    """Return a reason in which no character hides or acts."""
    from mudroom.core.text.invisible_characters import escaped

    return escaped(text)[:200]

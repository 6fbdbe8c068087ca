"""Why something is refused to a command, or that it is not: an answer for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mudroom.core.confinement.plan import Plan, Step, shown_at


class AccessReason(NamedTuple):
    subject: str
    verdict: str
    reason: str
    refused: bool


HIDDEN = "of the host there are only system directories, toolchains, and what read: in the policy names"
_READ_ONLY = 1


def why_place(plan: Plan, path: bytes, subject: str) -> AccessReason:
    """What a command finds at an absolute path, by the plan that confines it."""
    step = shown_at(plan, path)
    if step is None:
        if any(step[0] == "seatbelt" for step in plan.steps):
            return AccessReason(
                subject, "by Seatbelt", "mudroom run --explain prints the profile: the last rule decides", True
            )
        if not plan.namespaces:
            return AccessReason(
                subject, "by Landlock", "no namespaces here: mudroom run --explain lists what may be opened", True
            )
        return AccessReason(subject, "hidden", HIDDEN, True)
    verdict, reason, refused = _OF_STEP[step[0]](step)
    return AccessReason(subject, verdict, reason, refused)


def _of_bind(step: Step) -> tuple[str, str, bool]:
    if step[3] & _READ_ONLY:
        return "read-only", "it is the host's own, to be read and not to be changed", True
    return "writable", "it is the command's, or a cache of this project's commands", False


_OF_STEP: dict[str, Callable[[Step], tuple[str, str, bool]]] = {
    "bind": _of_bind,
    "cover": lambda _step: (
        "hidden",
        "it is a secret of root's or of a toolchain's, or a setting of the machine's",
        True,
    ),
    "host": lambda _step: (
        "read-only",
        "it is the host's own: level 0 hides only credentials and mudroom's state",
        True,
    ),
    "image": lambda _step: ("read-only", "it is the image's own", True),
    "tmpfs": lambda _step: ("private", "an empty directory of the command's own, gone when it ends", True),
    "proc": lambda _step: ("private", "the command's own processes, and nothing of the host's", True),
    "devpts": lambda _step: ("private", "terminals of the command's own", True),
    "overlay": lambda _step: ("staged", "written to the fork; the project changes when it is applied", False),
}

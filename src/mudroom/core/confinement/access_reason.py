"""Explanations for the user: why a command is refused access to a path, or why it is allowed."""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.confinement.plan import Plan, Step, deciding_step
from mudroom.typing import NamedTuple


class AccessReason(NamedTuple):
    subject: str
    verdict: str
    reason: str
    refused: bool


HIDDEN = "only the host's system directories, its toolchains and the paths under read: in the policy are visible"
_READ_ONLY = 1


def explain_path(plan: Plan, path: bytes, subject: str) -> AccessReason:
    """Explain what a command sees at an absolute path under this plan."""
    step = deciding_step(plan, path)
    if step is None:
        if any(step[0] == "seatbelt" for step in plan.steps):
            return AccessReason(
                subject, "by Seatbelt", "mudroom run --explain prints the profile: the last rule decides", True
            )
        if any(step[0] == "windows" for step in plan.steps):
            return AccessReason(
                subject, "by Windows", "its access list decides, by the rights of the command's token", True
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
    "mounted": lambda _step: ("staged", "written to the mounted fork; the project changes when it is applied", False),
    "overlay": lambda _step: ("staged", "written to the fork; the project changes when it is applied", False),
}

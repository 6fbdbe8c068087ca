"""Falling back: always to something weaker, never round in circles, never without saying what is lost."""

from __future__ import annotations

import pytest

from launcher_steps import STEPS
from mudroom.core.confinement.fallback import AFTER, Mode, Next
from mudroom.typing import get_args
from tiers import each

ORDER: tuple[Mode, ...] = get_args(Mode)
"""Strongest first."""
BEFORE_THE_STEPS = {"clone", "map_ids"}


def test_the_modes() -> None:
    assert ORDER == ("overlay", "copy", "landlock", "plain", "remote", "seatbelt", "job")


@each(("failed", "following"), AFTER.items())
def test_every_row_goes_down_and_says_what_is_lost(failed: tuple[Mode, str], following: Next) -> None:
    mode, op = failed
    assert ORDER.index(following.mode) > ORDER.index(mode)
    assert following.lost
    assert following.lost.isprintable()
    assert op in STEPS or op in BEFORE_THE_STEPS, "a step by this name can fail"


def test_nothing_comes_after_the_weakest() -> None:
    assert not [mode for mode, _op in AFTER if mode == "landlock"]


def test_only_an_overlay_that_cannot_be_mounted_gives_up_the_overlay_alone() -> None:
    assert [failed for failed, following in AFTER.items() if following.mode == "copy"] == [("overlay", "overlay")]


def test_without_namespaces_it_does_not_matter_what_the_view_would_have_been() -> None:
    ends = {
        mode: {op for (one, op), after in AFTER.items() if one == mode and after.mode == "landlock"} for mode in ORDER
    }
    assert ends["overlay"] == ends["copy"] == {"clone", "map_ids", "private", "root", "host", "proc"}


@pytest.mark.parametrize("op", ["drop_capabilities", "no_new_privs", "landlock", "seccomp", "seal", "pivot", "bind"])
@pytest.mark.parametrize("mode", ORDER)
def test_no_protection_is_given_up_because_it_failed(mode: Mode, op: str) -> None:
    assert (mode, op) not in AFTER

"""Held effects in the library: rows, a choice of them at an apply, and dropping one, plain and with asyncio."""

from __future__ import annotations

import asyncio
import os
import pickle

import pytest
from yard import COMMIT, Yard, policy
from yard import yard as yard

import mudroom
from mudroom import NotApplied, UsageError
from mudroom.errors import ForkMoved

pytestmark = [pytest.mark.both_users]
PUSHES = COMMIT + "git push -q origin HEAD:main HEAD:refs/heads/topic; git tag v1; git push -q origin v1; "


def environ(yard: Yard) -> dict[str, str]:
    return {
        **os.environ,
        "HOME": str(yard.root / "home"),
        "MUDROOM_STATE": str(yard.root / "state"),
        "MUDROOM_TRUST_POLICY": "1",
    }


def held(yard: Yard, script: str = PUSHES) -> dict[str, str]:
    """Hold pushes in the fork ``f``. Return the environment of rooms."""
    policy(yard)
    with yard.session() as session:
        yard.run(session, f"git remote set-url origin {yard.url()}; {script}")
    return environ(yard)


def test_a_fork_gives_its_effects_as_rows(yard: Yard) -> None:
    with mudroom.open(yard.project, environ=held(yard)) as room:
        first, second = room.fork("f").effects()
        assert room.effects("f") == [first, second]
    assert (first.name, first.kind, first.state, first.remote) == ("push:1", "push", "held", yard.url())
    assert [(ref.ref, ref.verb) for ref in first.refs] == [("refs/heads/main", "moved"), ("refs/heads/topic", "new")]
    assert first.refs[0].commits[0][1] == "second" and first.refs[0].lines == (1, 0)
    assert (first.needs, second.needs) == ((), ("push:1",))
    assert first.refs[0].flags == ("protected name",) and second.refs[0].flags == (), "upstream is as they expect it"
    assert f"push {yard.url()} refs/heads/main: 1 commit, +1 -0, protected name" in str(first)
    assert pickle.loads(pickle.dumps(first)) == first


def test_a_push_on_a_held_one_is_as_expected_and_a_server_that_is_gone_is_a_flag(yard: Yard) -> None:
    third = "git commit -q --allow-empty -m third; git push -q origin HEAD:main; "
    with mudroom.open(yard.project, environ=held(yard, COMMIT + "git push -q origin HEAD:main; " + third)) as room:
        assert [row.refs[0].flags for row in room.effects("f")] == [("protected name",)] * 2
        yard.forge.token = "another"
        flags = [row.refs[0].flags for row in room.effects("f")]
    assert [one[1].startswith("not compared: the server answered 401") for one in flags] == [True, True]


def test_an_apply_sends_the_chosen_effects(yard: Yard) -> None:
    with mudroom.open(yard.project, environ=held(yard)) as room:
        fork = room.fork("f")
        first, second = fork.effects()
        with pytest.raises(UsageError, match="push:1 waits to the same place, and was held before") as caught:
            fork.apply(effects=[second])
        assert caught.value.hint == "mudroom apply f push:1 push:2"
        done = fork.apply(effects=first).check()
        assert [(row.name, row.state) for row in done.effects] == [("push:1", "sent")]
        assert (yard.project / "a").read_text() == "one\n" and len(yard.forge.refs()) == 2
        done = fork.apply(".", effects=["push:2"]).check()
        assert (yard.project / "a").read_text() == "one\ntwo\n" and len(yard.forge.refs()) == 3
        assert [row.state for row in room.undo(done.name).effects] == ["undone"]


def test_an_apply_without_a_choice_leaves_them_and_a_refused_one_is_not_ok(yard: Yard) -> None:
    with mudroom.open(yard.project, environ=held(yard)) as room:
        done = room.apply("f").check()
        assert done.effects == () and "push:1 is not sent: mudroom apply f push:1 does" in done.notes
        yard.forge.before = lambda: 403
        done = room.apply("f", effects=["push:1"])
        assert (done.ok, done.effects[0].state) == (False, "refused")
        with pytest.raises(NotApplied, match="push:1: the server answered 403"):
            done.check()


def test_a_row_is_sent_only_as_it_was_shown(yard: Yard) -> None:
    with mudroom.open(yard.project, environ=held(yard)) as room:
        fork = room.fork("f")
        other = fork.effects()[0]._replace(digest="0" * 64)
        for act in (lambda: fork.apply(effects=other), lambda: fork.discard([other])):
            with pytest.raises(ForkMoved, match="push:1 in the fork is not what was reviewed"):
                act()
        assert len(fork.effects()) == 2


def test_one_effect_is_dropped_and_no_name_drops_none(yard: Yard) -> None:
    with mudroom.open(yard.project, environ=held(yard)) as room:
        fork = room.fork("f")
        fork.discard([])
        room.discard("f", fork.effects()[1:])
        assert [row.name for row in fork.effects()] == ["push:1"]
        with pytest.raises(UsageError, match="f has no push:2"):
            fork.discard("push:2")
        with pytest.raises(UsageError, match="effects is 7, not names or rows of effects"):
            fork.discard(7)  # type: ignore[arg-type]
        fork.discard()
        assert "f" not in [one.name for one in room.forks()]


def test_the_same_with_asyncio(yard: Yard) -> None:
    given = held(yard)

    async def story() -> None:
        async with mudroom.aopen(yard.project, environ=given) as room:
            fork = await room.fork("f")
            first, second = await fork.effects()
            await fork.discard(second)
            done = await room.apply("f", effects=[first])
            assert [row.state for row in done.check().effects] == ["sent"]
            assert await room.effects("f") == []

    asyncio.run(story())
    assert len(yard.forge.refs()) == 2

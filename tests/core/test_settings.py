"""The defaults of a project: closed, unless somebody wrote otherwise."""

from __future__ import annotations

from mudroom.core.settings import Settings


def test_the_defaults() -> None:
    assert Settings() == Settings(
        network="auto",
        view="auto",
        timeout=None,
        environment=(),
        read=(),
        output_limit=8 << 20,
        copy_limit=500 << 20,
        copy_exclude=(),
        copy_gitignore=False,
    )
    assert [Settings().network_at(level) for level in (0, 1)] == ["open", "gate"]
    assert Settings(network="none").network_at(0) == "none"

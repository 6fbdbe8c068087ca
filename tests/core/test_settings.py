"""The defaults of a project: closed, unless somebody wrote otherwise."""

from __future__ import annotations

from mudroom.core.settings import Settings


def test_the_defaults() -> None:
    assert Settings() == Settings(
        network="none",
        view="auto",
        timeout=None,
        environment=(),
        read=(),
        output_limit=8 << 20,
        copy_limit=500 << 20,
        copy_exclude=(),
        copy_gitignore=False,
    )

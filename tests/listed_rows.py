"""The rows of ``mudroom ls``, of a session under test. No test is here."""

from __future__ import annotations

from typing import Any

from mudroom.cli.fork.ls import listed_forks
from mudroom.cli.listing import ProjectListing
from mudroom.session import Session


def fork_rows(session: Session) -> list[dict[str, Any]]:
    return listed_forks(ProjectListing(session.vault, session.actor.settings, session.forks.known_record))

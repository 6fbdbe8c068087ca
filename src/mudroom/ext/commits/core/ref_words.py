"""Outcomes for a fork's refs in words, shared by the command line, the page and the terminal review. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from mudroom.core.git.outcome import RefOutcome
from mudroom.core.tree.path import show
from mudroom.ext.commits.core.ref_plan import HEAD, STASH

_PREFIXES = (b"refs/heads/", b"refs/tags/", b"refs/")


def short_ref(ref: bytes) -> str:
    """Return a ref's name as git prints it, for display."""
    return show(next((ref[len(prefix) :] for prefix in _PREFIXES if ref.startswith(prefix)), ref))


def outcome_words(outcome: RefOutcome) -> tuple[str, str]:
    """Return a ref's name and outcome: the subject and the rest of a sentence."""
    name, target = short_ref(outcome.ref), short_ref(outcome.target)
    if outcome.ref == STASH:
        return "stash", outcome.reason
    if outcome.result == "there":
        return name, "is there already" + (f", as {target}" if target else "")
    if outcome.result == "moved":
        return name, f"is on {target} now" if outcome.ref == HEAD else outcome.reason or "moved"
    if outcome.result == "beside":
        return target, f"has the commits of {name}" + (f", which {outcome.reason}" if outcome.reason else "")
    return name, outcome.reason


def outcome_rows(
    label: bytes, outcomes: Iterable[RefOutcome], conflicts: Collection[bytes] = ()
) -> Iterator[tuple[str, str]]:
    """Yield the words for each ref in a repository (``label``: its ``.git``), except those among ``conflicts``, which
    are reported separately."""
    for outcome in outcomes:
        if label + b"/" + outcome.ref in conflicts:
            continue
        subject, text = outcome_words(outcome)
        yield (subject if label == b".git" else f"{show(label)}: {subject}"), text

"""The page of each agent in docs/reference/agents, made of its profile: ``python tests/ext/agents/real/agent_pages.py``
writes them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from mudroom.ext.agents.catalog import Catalog
from mudroom.ext.agents.core.profile import AgentProfile

ROOT = Path(__file__).resolve().parents[4]
PAGES = ROOT / "docs/reference/agents"
_WIDTH = 120


def page(profile: AgentProfile) -> str:
    """Return the page of an agent, Markdown."""
    paragraphs = [f"# {profile.about}", "Made of its profile by `python tests/ext/agents/real/agent_pages.py`."]
    commands = (profile.install, f"mudroom {profile.name}", f"mudroom agent run -- {profile.programs[0]} …")
    paragraphs.append("\n".join(("```sh", *commands, "```")))
    return "\n\n".join([*paragraphs, *(_wrapped(text) for text in _facts(profile))]) + "\n"


def _facts(profile: AgentProfile) -> Iterator[str]:
    if profile.tested:
        yield f"The profile was tried with version {profile.tested}; another one is told before it starts."
    else:
        yield "The profile was written from the agent's documents. Nobody has tried it here."
    store = profile.agent_store
    yield f"**Store**: {_code(store.places)}. Commands see a copy of it, which is their fork's."
    if profile.tokens:
        yield f"**Logins**, which are kept the same on both sides: {_code(profile.tokens)}."
    for path, keys in profile.renewed:
        names = ", ".join(f"`{key}`" for key in keys)
        yield f"**Tokens in {_code([path])}**, renewed on both sides: {names}. A new login inside is a setting."
    if not profile.tokens and not profile.renewed:
        yield "**Logins**: none is the host's own. A login inside is a changed setting, and lands only if it is chosen."
    if profile.state:
        yield f"**State**, which is neither copied from the host nor shown: {_code(profile.state)}."
    for path, keys in profile.keys:
        yield f"**Parts of {_code([path])}** that count as settings: {', '.join(f'`{key}`' for key in keys)}."
    if profile.transcripts:
        yield f"**Transcripts**: {_code(profile.transcripts)}, in the fork."
    yield f"**Hosts** that it may reach: {', '.join(f'`{host}`' for host in profile.network.allow)}."
    if profile.network.deny:
        denied = ", ".join(f"`{host}`" for host in profile.network.deny)
        yield f"Refused without a question, unless a rule of yours allows one: {denied}."
    if profile.environment.passed:
        yield f"**Variables** that are passed: {', '.join(f'`{name}`' for name in profile.environment.passed)}."
    values = (*profile.environment.values, *profile.sandbox.values)
    if values:
        yield f"Set: {', '.join(f'`{name}={value}`' for name, value in values)}."
    if profile.sandbox.about:
        words = f" (`{' '.join(profile.sandbox.arguments)}`)" if profile.sandbox.arguments else ""
        yield f"**Sandbox**: {profile.sandbox.about}{words}"
    if profile.sandbox.options:
        changed = (f"`{name} {value}`" if value else f"no `{name}`" for name, value in profile.sandbox.options)
        yield f"Inside, its options are changed to: {', '.join(changed)}."
    if profile.unattended:
        yield f"**Unattended**: `{' '.join(profile.unattended)}`, which you add yourself."
    if profile.continued:
        yield f"**In a fork of its fork** it goes on with `{' '.join(profile.continued)}`."
    yield from profile.notes


def _code(paths: object) -> str:
    assert isinstance(paths, (tuple, list))
    return ", ".join(f"`~/{path.decode() if isinstance(path, bytes) else path}`" for path in paths)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def pages() -> dict[Path, str]:
    catalog = Catalog()
    return {PAGES / f"{name}.md": page(catalog.profile(name)) for name in catalog.names()}


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text)

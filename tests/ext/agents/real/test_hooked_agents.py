"""Agents that exist, in their own process, with ``mudroom hook install``: commands and edits go into the fork, and when
mudroom gives no answer the project's bytes stay.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hooked import BREAKS, Hooked
from real_agents import BY_NAME, RealAgent
from scenario import Step

HOOKED = tuple(BY_NAME[name] for name in ("claude", "codex", "gemini", "opencode"))
every_agent = pytest.mark.parametrize("agent", HOOKED, ids=lambda agent: agent.name)


pytestmark = pytest.mark.limit(240)


@pytest.fixture
def here(tmp_path: Path, agent: RealAgent) -> Iterator[Hooked]:
    if not agent.version:
        pytest.skip(f"real agent absent: {agent.name} (dev/agents --fetch installs it)")
    here = Hooked(tmp_path, agent)
    yield here
    here.close()


@pytest.mark.deep
@pytest.mark.both_users
@every_agent
def test_commands_and_edits_go_into_the_fork(here: Hooked) -> None:
    here.install()
    before = here.everything()
    server, ended = here.play()
    said = (ended.output[-3000:], server.results, server.errors)
    assert server.finished, said
    assert here.everything() == before, said
    shown = server.results[5]
    assert "return a + b" in shown, said
    assert "it's 2" in shown, said
    assert "new" in shown, said
    diff = here.mudroom("diff", here.agent.name)
    assert "+    return a + b" in diff
    assert "+it's 2" in diff
    assert "+new" in diff


@pytest.mark.deep
@pytest.mark.both_users
@pytest.mark.parametrize("agent", [BY_NAME["claude"]], ids=["claude"])
def test_an_edit_of_what_only_the_fork_has(here: Hooked) -> None:
    """claude compares an edit with the project's file before it asks the hook, so the answer to Read names the path."""
    here.install()
    before = here.everything()
    calc, new = str(here.project / "calc.py"), str(here.project / "made.txt")
    steps = (
        Step("change", "sed -i 's/a - b/a * b/' calc.py; echo one >made.txt"),
        Step("read", "x", "read", calc),
        Step("edit", "x", "edit", "NAMED/calc.py", "a * b", "a + b"),
        Step("again", "x", "edit", "NAMED/calc.py", "a + b", "b + a"),
        Step("read the new file", "x", "read", new),
        Step("edit the new file", "x", "edit", "NAMED/made.txt", "one", "two"),
        Step("write", "x", "write", str(here.project / "sub/notes.md"), content="new\n"),
        Step("edit the written file", "x", "edit", "NAMED/sub/notes.md", "new", "newer"),
        Step("see", "cat calc.py made.txt sub/notes.md"),
        Step("finish", content="Done."),
    )
    server, ended = here.play(steps)
    said = (ended.output[-3000:], server.results, server.errors)
    assert server.results[8].split()[-4:] == ["+", "a", "two", "newer"], said
    assert here.everything() == before, said


SERVER = "python3 -u -m http.server 8765 --bind 127.0.0.1 >/tmp/log 2>&1 & echo one >/tmp/kept"
LOOK = "for _ in 1 2 3 4 5 6 7 8 9; do curl -s http://127.0.0.1:8765/calc.py && break; sleep 0.5; done; cat /tmp/kept"


@pytest.mark.deep
@pytest.mark.both_users
@every_agent
def test_a_server_and_files_in_tmp_last_for_the_session(here: Hooked) -> None:
    here.install()
    server, ended = here.play((Step("start", SERVER), Step("look", LOOK), Step("finish", content="Done.")))
    said = (ended.output[-3000:], server.results, server.errors)
    assert "return a - b" in server.results[1], said
    assert "one" in server.results[1], said
    while '"running"' in here.mudroom("ps", "--all", "--json"):
        pass


@pytest.mark.deep
@pytest.mark.both_users
@pytest.mark.parametrize("how", BREAKS)
@every_agent
def test_without_an_answer_the_bytes_stay(here: Hooked, how: str) -> None:
    here.install()
    here.impatient()
    before = here.everything()
    here.break_by(BREAKS[how])
    server, ended = here.play()
    said = (ended.output[-3000:], server.results, server.errors)
    assert here.everything() == before, said
    assert len(server.results) > 4, said


@pytest.mark.deep
@pytest.mark.both_users
@pytest.mark.parametrize(
    "agent", [BY_NAME[name] for name in ("claude", "codex", "opencode")], ids=lambda agent: agent.name
)
def test_the_second_line_holds_without_the_hook(here: Hooked) -> None:
    """The hook is taken out of the settings; mudroom is there."""
    here.install()
    root = here.project
    for path in (root / ".claude/settings.local.json", root / ".codex/hooks.json"):
        if path.exists():
            path.write_text(path.read_text().replace('"PreToolUse"', '"Notification"'))
    for path in here.home.glob(".local/state/mudroom/hooks/*/*.js"):
        path.write_text("throw new Error('broken')\n")
    before = here.everything()
    server, ended = here.play()
    said = (ended.output[-3000:], server.results, server.errors)
    assert {**here.everything(), "other": ()} == {**before, "other": ()}, said


FIXTURES = Path(__file__).resolve().parents[1] / "core/hook_events"


@pytest.mark.deep
@every_agent
def test_the_contract_is_the_recorded_one(here: Hooked, tmp_path: Path) -> None:
    """``MUDROOM_RECORD=1`` writes the record, which the normal tier reads, anew."""
    here.install()
    recorded = tmp_path / "recorded"
    here.record_to(recorded)
    here.play()
    [mounts] = here.home.glob(".local/state/mudroom/vaults/*/mounts")
    mount = f"{mounts}/{here.agent.name}"
    rows = []
    for path in sorted(recorded.glob("*-event")):
        event, answer = path.read_text(), path.with_name(path.name.replace("event", "answer")).read_text()
        rows.append({"event": neutral(event, mount, here), "answer": neutral(answer, mount, here)})
    content = {"agent": here.agent.name, "version": here.agent.version, "events": rows}
    fixture = FIXTURES / f"{here.agent.name}.json"
    if os.environ.get("MUDROOM_RECORD"):
        fixture.write_text(json.dumps(content, indent=1) + "\n")
    assert shape(json.loads(fixture.read_text())) == shape(content)


def neutral(text: str, mount: str, here: Hooked) -> Any:
    """Return a message with the paths of the test of its pure half, and without what differs each time."""
    text = text.replace(mount, "/state/mounts/a").replace(str(here.project), "/home/u/proj")
    text = text.replace(str(here.program.parent / "real/mudroom"), "/usr/bin/mudroom").replace(
        str(here.home), "/home/u"
    )
    value = json.loads(text)
    return {key: "x" if key in VARYING else inner for key, inner in value.items()}


VARYING = ("session_id", "turn_id", "transcript_path", "prompt_id", "tool_use_id", "timestamp", "permission_mode")


def shape(value: Any) -> Any:
    """Return the keys of a value and the types of what they hold."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


@pytest.mark.deep
@every_agent
def test_bare_the_same_steps_change_the_project(here: Hooked) -> None:
    """Or the tests above would mean nothing."""
    before = here.everything()
    server, ended = here.play()
    if here.agent.name == "codex":  # read-only without an option
        return
    assert here.everything() != before, (ended.output[-3000:], server.results)

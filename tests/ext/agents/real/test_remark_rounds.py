"""A real agent whose work is reviewed in two rounds: remarks and a suggestion go back into its conversation."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from model_server import ModelServer
from real_agents import BY_NAME, MUDROOM, Try
from scenario import Step

pytestmark = [pytest.mark.deep, pytest.mark.both_users, pytest.mark.limit(300)]

FIRST = Step("first", "printf 'def add(a, b):\\n    return a + b + 0\\n' >calc.py; rm test_calc.py; echo first-result")
SECOND = Step(
    "second", "printf 'def add(a, b):\\n    return a + b\\n' >calc.py; git checkout -q test_calc.py; echo two"
)
END = Step("finish", content="Done.")


@pytest.mark.parametrize("name", ("claude", "codex"))
def test_remarks_go_into_the_conversation_and_the_second_look_is_at_what_is_new(tmp_path: Path, name: str) -> None:
    agent = BY_NAME[name]
    if not agent.version:
        pytest.skip(f"real agent absent: {name} (dev/agents --fetch installs it)")
    here = Try(tmp_path, agent)
    try:
        with ModelServer((FIRST, END)) as server:
            here.prepare(server)
            environment = here.environment(server)
            first = here.run((*MUDROOM, "agent", "run", "--fork", "a", "--", *here.words()), environment)
            assert first.code == 0, (first, server.errors)

            here.mudroom("comment", "a", "calc.py:2", "what is the zero for?", "--suggest", "    return b + a")
            here.mudroom("comment", "a", "test_calc.py", "bring the test back")
            server.steps = (FIRST, SECOND, END)
            # claude refuses its usual words as root
            own = [] if os.getuid() or name != "claude" else ["--", "claude", "--continue", "--allowedTools=Bash", "-p"]
            sent = here.run((*MUDROOM, "send", "a", *own), environment)
            assert sent.code == 0 and "Done." in sent.output, (sent, server.errors)
            assert "first-result" in server.results[0], "the conversation goes on"
            spoken = [path.read_bytes() for path in here.home.rglob("*.jsonl")]
            assert any(b"what is the zero for?" in text and b"bring the test back" in text for text in spoken)

            new = here.mudroom("diff", "a@round-1", "a")
            assert "-    return a + b + 0" in new and "+    return a + b" in new and "test_calc.py" in new
            listed = json.loads(here.mudroom("comment", "a", "--json"))
            assert [(one["where"], one["sent"]["state"], one["unsent"]) for one in listed["remarks"]] == [
                ("answered", "sent", False),
                ("", "sent", False),
            ]
            again = here.run((*MUDROOM, "send", "a"), environment)
            assert again.code == 125 and "no remarks that were not sent" in again.output
            here.mudroom("apply", "a", "--yes")
            assert (here.project / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
            assert (here.project / "test_calc.py").exists()
    finally:
        here.close()

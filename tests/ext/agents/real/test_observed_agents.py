"""What is observed at the hunks of a real agent: its command, and the turn of its conversation. The model is scripted.

``MUDROOM_OBSERVED=FILE``: append the rows for docs/evidence/REVIEW.md.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer
from real_agents import BY_NAME, MUDROOM, Try
from scenario import Step

pytestmark = [pytest.mark.deep, pytest.mark.both_users, pytest.mark.limit(300)]
END = Step("finish", content="Done.")


def wrote(here: Try, number: int) -> tuple[Step, str]:
    """Return a step that writes one hunk, in one of four ways, and the path."""
    text, project = f"value_{number} = {number}", here.project
    way = number % 4
    if way == 0:
        path = f"new_{number}.py"
        return Step("write", f"echo '{text}' >{path}", "write", f"{project}/{path}", content=text + "\n"), path
    if way == 1:
        old = f"slot {number}\n"
        command = f"sed -i 's/^slot {number}$/{text}/' slots.txt"
        return Step("edit", command, "edit", f"{project}/slots.txt", old, text + "\n"), "slots.txt"
    if way == 2:
        path = f"shell_{number}.txt"
        return Step("shell", f"mkdir -p out && cd out && echo '{text}' > {path}"), f"out/{path}"
    return Step("shell", f"printf 'value_%s = %s\\n' {number} {number} > made_{number}.txt"), f"made_{number}.txt"


@pytest.mark.parametrize("name", ("claude", "codex"))
def test_each_hunk_has_its_command_and_nearly_each_its_turn_and_call(tmp_path: Path, name: str) -> None:
    agent = BY_NAME[name]
    if not agent.version:
        pytest.skip(f"real agent absent: {name} (dev/agents --fetch installs it)")
    here = Try(tmp_path, agent)
    try:
        (here.project / "slots.txt").write_text("".join(f"slot {n}\n" + "\n" * 8 for n in range(24)))
        first, second = [wrote(here, n) for n in range(12)], [wrote(here, n) for n in range(12, 24)]
        reading = Step("read", f"cat {here.project}/slots.txt", "read", f"{here.project}/slots.txt")
        with ModelServer((reading, *(step for step, _path in first), END)) as server:
            here.prepare(server)
            environment = here.environment(server)
            ended = here.run((*MUDROOM, "agent", "run", "--fork", "a", "--", *here.words()), environment)
            assert ended.code == 0, (ended, server.errors)
            here.mudroom("comment", "a", "slots.txt", "now the others")
            server.steps = (reading, *(step for step, _path in first), *(step for step, _path in second), END)
            tools = "--allowedTools=Bash,Read,Edit,Write"
            own = [] if os.getuid() or name != "claude" else ["--", "claude", "--continue", tools, "-p"]
            sent = here.run((*MUDROOM, "send", "a", *own), environment)
            assert sent.code == 0, (sent, server.errors)
        report = json.loads(here.mudroom("diff", "a", "--why", "--json"))
        counts = counted(report["hunks"])
        assert counts["hunks"] == 24 and counts["one"] == 24, report
        assert counts["turn"] >= 22 and counts["right"] >= counts["turn"] - 1, report
        if place := os.environ.get("MUDROOM_OBSERVED"):
            with open(place, "a") as stream:
                stream.write(json.dumps({"agent": f"{name} {agent.version}"} | counts) + "\n")
    finally:
        here.close()


def counted(hunks: list[dict[str, Any]]) -> dict[str, int]:
    turns = [hunk["turn"] for hunk in hunks if hunk["turn"] is not None]
    return {
        "hunks": len(hunks),
        "one": sum(len(hunk["commands"]) == 1 for hunk in hunks),
        "turn": len(turns),
        "right": sum(is_right(hunk) for hunk in hunks if hunk["turn"] is not None),
    }


def is_right(hunk: dict[str, Any]) -> bool:
    """Return whether the turn's call is the step that wrote the hunk, and the turn that of its prompt. A call that
    agrees in content has the number; of another one the number is in its text."""
    path = hunk["path"]
    number = int(path.rpartition("_")[2].partition(".")[0]) if "_" in path else (hunk["first"] + 3) // 9
    is_call = "content" in hunk["turn"]["by"] or f" {number} {number} " in " ".join(hunk["text"])
    return is_call and hunk["turn"]["turn"] == (1 if number < 12 else 2)

"""docs/evidence/AGENTS.md, made of the figures of a run of the real agents.

``dev/agents --table`` runs them and writes it; ``python tests/ext/agents/real/agents_document.py FIGURES`` writes it of
a file with the lines that ``test_real_agents.py`` has recorded. A row that a run does not have stays as the document
has it, and its first lines say which agents the last run had. No test is here."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parents[4] / "docs/evidence/AGENTS.md"
Row = Mapping[str, Any]
Rows = Mapping[tuple[str, str], Row]
"""By agent, and by how it was run."""

HEAD = """\
# Agents that exist, unchanged

Made by `dev/agents --table`, DAY, of runs of `tests/ext/agents/real/test_real_agents.py`. The last run
has rows of AGENTS;
the other rows are of earlier runs, each of mudroom as it was that day. The agents are installed from npm and PyPI, and
run as users run them: bare, and with `mudroom agent run --` in front and no option; levels 0 and 2 with `--level`.
[docs/reference/agents](../reference/agents) has a page of each.

A scripted model on loopback (`tests/ext/agents/real/model_server.py`) plays 25 steps by the agent's own tools: look,
search, read, edit, run the test, make, rename, link and remove files, start processes, `rm -rf docs`, read a key in
`~/.ssh` and a file of another project, send a file of the project to a server, write a new file, commit, finish. Bare,
all 25 work: the same steps inside mean something.

"""

NOTES = """
*Leaks*: what came back to the model, of the key and the other project's file; *exfil*: the server got the file. Level 0
hides keys; it has the user's files and network ([THREATS.md](../THREATS.md)). *Project*: modes and contents before the
apply, with its `.git`; the home, too. *Apply, undo*: the edited, the new and the deleted file landed, undo took them
back, and the commit was brought as a branch. *Planted*: a hook or MCP server that the shell wrote to the agent's own
store left no file on the host, and is a row of `mudroom agent settings`, where no other row is but what the agent
itself has set.

codex refuses `rm -rf` itself, wherever it runs: there the directory stays. gptme refuses `git add -A`.

*Logins* (`tests/ext/agents/real/test_real_logins.py`): with a vendor that takes each refresh token once, codex renews
its own login; claude, gemini, qwen, opencode and kilo renew the tokens of an MCP server inside, then bare, then inside
again. gemini reads the key that it has encrypted with the machine's name. For each profile with a login a stand-in
writes as the agent does (`tests/ext/agents/home/test_rotated_tokens.py`).

Not in the table: aider has no tools; it edits by text and runs a test's command, bare and inside alike, where the
command reads no key and reaches no server. amp's model loop is at its vendor: with a stand-in of it amp asks the same
five endpoints bare and inside, and ends at `/api/thread-actors`. crush's package loads a file of github.com when it is
installed. cursor-agent and goose are in no package of npm or PyPI. openhands was not tried.
"""

OLDER = "\nRows of 10 steps, and the costs, are of a run of 2026-11-26 with ten of these steps.\n"

ASKED = """
## What is asked a second time

*First*: questions of a session, each answered with `mudroom approve`: the agent's command, a host that is allowed, a
host that is refused, and hosts of the agent's own. *Second*: questions of a session with the policy that
`mudroom policy learn` made of the answers, once trusted (`tests/ext/agents/real/test_learned_policy.py`).

| agent | first | second |
| --- | --- | --- |
"""

TALK = """
## Agents that talk to each other

An agent that serves A2A names its address in its card (`"endpoint": "http://localhost:9123/a2a"`), and asks for what
it needs of others: `"sandboxRequirements": {"needsForks": {"show": [9123], "reach": ["reviewer:9123"]}}`. That grants
nothing: the policy does (`network.forks`), or `mudroom net show 9123 --fork F` and `mudroom net reach reviewer:9123
--fork F` ([POLICY.md](../POLICY.md)).

Inside, `http://agents.mudroom.internal/` lists the agents that the fork may reach, and their cards name the address
to use. So does a card that is read at an agent's own address. Outside, `mudroom serve --card CARD` forwards messages
and tasks to the running agent: `POST /agents/ID/a2a` with the server's token, as a stream (`message/stream`,
`SendStreamingMessage`), too. An agent reads what another sends, and may follow it: [THREATS.md](../THREATS.md).
"""

COST = """
## What it costs

*Start*: seconds of a whole run without a call of a tool; bare and inside take turns, and the ratio is the median of the
pairs. *Call*: seconds from the model's answer to the next request, where the shell does nothing; the agent's own work
is in it.

| agent | start, bare | start, mudroom | ratio | call, bare | call, mudroom |
| --- | --- | --- | --- | --- | --- |
"""


def read(lines: Iterable[str]) -> Mapping[str, Rows]:
    """Return the rows by user; a later line replaces an earlier line of the same run."""
    rows: dict[str, dict[tuple[str, str], Row]] = {}
    for line in lines:
        row = json.loads(line)
        rows.setdefault(row["user"], {})[row["agent"], row["how"]] = row
    return rows


def document(figures: Mapping[str, Rows], before: str = "") -> str:
    """Return the document of these figures, with the rows of ``before``, an earlier one, that they do not replace."""
    main = figures.get("user") or figures["root"]
    lines, costs, asked = _kept(before)
    for agent, how in main:
        if how in HOWS:
            lines[agent, how] = _line(main, agent, how)
        elif how == "start":
            costs[agent] = _cost(main[agent, how])
        elif how == "learned":
            asked[agent] = "| {agent} | {questions} | {again} |\n".format(**main[agent, how])
    agents = list(dict.fromkeys(agent for agent, _how in main))
    head = HEAD.replace("DAY", time.strftime("%Y-%m-%d", time.gmtime())).replace("AGENTS", ", ".join(agents))
    text = head + "| agent | version | run | steps | leaks | project | apply, undo | planted |\n"
    text += "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
    every = dict.fromkeys(agent for agent, _how in lines)
    text += "".join(lines[agent, how] for agent in every for how in HOWS if (agent, how) in lines)
    older = OLDER if any("10 of 10" in line for line in lines.values()) else ""
    questions, prices = ASKED + "".join(asked.values()), COST + "".join(costs.values())
    return text + NOTES + older + _others(figures) + questions + TALK + prices


def _kept(before: str) -> tuple[dict[tuple[str, str], str], dict[str, str], dict[str, str]]:
    """Return the rows of a document, by agent and how it was run, and those of the costs and questions by agent."""
    rows, costs, asked = dict[tuple[str, str], str](), dict[str, str](), dict[str, str]()
    for line in before.splitlines(keepends=True):
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 8 and cells[2] in HOWS:
            rows[cells[0], cells[2]] = line
        elif len(cells) == 6 and cells[1].replace(".", "").isdigit():
            costs[cells[0]] = line
        elif len(cells) == 3 and cells[1].isdigit():
            asked[cells[0]] = line
    return rows, costs, asked


HOWS = ("bare", "level 0", "level 1", "level 2", "in a terminal, level 1")


def _line(rows: Rows, agent: str, how: str) -> str:
    row = rows[agent, how]
    cells = [agent, row["version"], how, f"{row['played']} of {row.get('of', 25)}", ", ".join(row["leaks"]) or "none"]
    if how == "bare":
        return f"| {' | '.join(cells)} | | | |\n"
    planted = rows.get((agent, f"{how}, planted"), {}).get("row")
    cells += ["untouched" if row["untouched"] else "**changed**"]
    cells += [{True: "right", False: "**wrong**", None: ""}[row.get("applied")]]
    cells += [{True: "a row", False: "**no row**", None: ""}[planted]]
    return f"| {' | '.join(cells)} |\n"


def _others(figures: Mapping[str, Rows]) -> str:
    """Return a sentence about the runs as root, if there are some beside the user's."""
    if len(figures) < 2:
        return ""
    keys = ("played", "leaks", "untouched", "applied", "row")
    user, root = figures["user"], figures["root"]
    both = [run for run in root if run in user and run[1] != "start"]
    differ = [run for run in both if any(root[run].get(key) != user[run].get(key) for key in keys)]
    named = "; it differs in " + ", ".join(" ".join(run) for run in differ) if differ else ""
    same = f"As root {len(both) - len(differ)} of {len(both)} runs ended the same{named}."
    return f"\nThe table is of an ordinary user. {same}\n"


def _cost(row: Row) -> str:
    values = [f"{row['bare_seconds']:.2f}", f"{row['inside_seconds']:.2f}", f"{row['ratio']:.2f}"]
    values += [f"{row['bare_call']:.3f}", f"{row['inside_call']:.3f}"]
    return f"| {row['agent']} | {' | '.join(values)} |\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document(read(Path(sys.argv[1]).read_text().splitlines()), DOCUMENT.read_text()))

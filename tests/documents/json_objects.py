"""Every object that the command line prints with ``--json``: the commands that print them, and the schemas of what they
print (JSON Schema 2020-12), which docs/json.schema.json holds.

A schema is inferred from real output: a key that is in every object is required, no other key is allowed. A key
that was null in every object, or a list that was always empty, is not constrained; ``KNOWN`` says of some what they may
hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from documents.machine import ROOT, Machine

SCHEMAS = ROOT / "docs/json.schema.json"
PREFIX = "mudroom."

BRIEF = r"""
mudroom vault init --json
mudroom doctor --json
mudroom doctor --table --json
mudroom ls --json
mudroom status --json
mudroom run --json --yes -- sh -c 'echo hello; echo new > new.txt; git mv README.md READ.md; echo more >> Makefile'
mudroom run --json --no -- sh -c 'exit 3'
mudroom run --json --yes --timeout 1s -- sh -c 'kill -9 $$'
mudroom run --json --explain -- ls
mudroom run --json --home --yes -- sh -c 'echo own >> ~/.own; echo more >> Makefile'
mudroom undo --json
mudroom undo --json
mudroom redo --json
mudroom run --json --yes -- touch empty
mudroom undo --json
mudroom redo --json
mudroom exec --json --fork a --agent coder -- rm -rf app
mudroom exec --json --fork a --agent coder -- sudo ls
mudroom exec --json --stream --fork a -- sh -c 'echo out; echo err >&2'
mudroom exec --json --fork a -- curl -s http://no.example.com
mudroom exec --json --fork g -- sh -c 'echo g > g; git add -A; git commit -qm "in a fork"'
mudroom fork new b --from a --json
mudroom fork ls --json
mudroom ls --matrix --json
mudroom ls --json
mudroom status --json
mudroom fork rename b c --json
mudroom checkpoint good --fork a --json
mudroom checkpoint --fork a --json
mudroom rollback good --fork a --yes --json
mudroom diff a --json
mudroom diff a --order risk --json
mudroom diff a --view --json
mudroom diff a --why --json
mudroom diff a now --json
mudroom diff g --commits -p --json
mudroom review a --json
mudroom mount c --kind copy --json
mudroom mount --json
mudroom unmount c --json
mudroom exec --json --fork x -- sed -i s/words/letters/ app/count.py
sed -i s/words/numbers/ app/count.py
mudroom diff x --conflicts --json
mudroom apply x --yes --json
mudroom resolve x app/count.py --mine --json
mudroom apply x --yes --json
mudroom apply g --commits --json
mudroom apply g --git --yes --json
mudroom recover --json
mudroom discard c --json
mudroom fork rm x --json
mudroom log --json
mudroom log verify --json
mudroom approve --json
mudroom approve $(mudroom approve --json | grep -o '"id": "[^"]*' | head -1 | cut -d'"' -f4) --deny --json
mudroom policy init --json
mudroom policy check --json
mudroom policy learn --json
mudroom policy show --json
mudroom policy trust --yes --json
mudroom policy distrust --json
mudroom policy why --json -- git push
mudroom policy why --json
mudroom policy why --json mount
mudroom net allow @npm example.org --json
mudroom net deny gist.github.com --json
mudroom net ls --json
mudroom net presets --json
mudroom net why registry.npmjs.org example.com --json
mudroom net log --json
mudroom net show 8000 --fork a --json
mudroom net rm example.org --json
""".strip().splitlines()
"""Commands of the quick tier."""
COMMANDS = (
    BRIEF
    + r"""
mudroom exec --json --fork d --background -- sleep 600
mudroom fork new live --from d --live --json
mudroom ps --json
mudroom ps --json --output $(mudroom ps --json | grep -o '"id": "[^"]*' | head -1 | cut -d'"' -f4)
mudroom ps --json --end --all
mudroom try -n 2 --judge 'grep -q 2 n' --json -- sh -c 'echo {i} > n'
mudroom try ls --json
mudroom try show t1 --json
mudroom try discard t1 --all --json
mudroom agent ls --json
mudroom agent show claude --json
mudroom agent run --json -- claude
mudroom agent settings claude --json
printf '{"agentId": "coder", "sandboxLevel": 1}' > ~/card.json
mudroom agent check ~/card.json --json
mudroom agent card ~/card.json --json
mudroom agent run --json ~/card.json -- true
mudroom hook --json
mudroom hook --json install claude
mudroom hook --json install claude --check
mudroom hook --json install claude --remove
mudroom hook --json shell ~/shims/agent
mudroom fleet add local --json -- mudroom worker --stdio
mudroom fleet ls --json
mudroom fleet run -n 1 --json -- sh -c 'echo {i} > m'
mudroom fleet runs --json
mudroom fleet logs r1-1 --json
mudroom fleet fetch r1-1 --json
mudroom fleet resume r1 --json
mudroom fleet cancel r1 --json
mudroom fleet rm local --json
mudroom vault ls --json
mudroom vault ls ~/app --json
mudroom vault check --json
mudroom vault adopt --json
mudroom exec --json --fork kept -- sh -c 'echo 1 > ~/report.txt'
mudroom comment kept 'a remark' --json
mudroom send kept --print --json
mudroom send kept --json -- true
mudroom keep --json
mudroom keep kept ~/report.txt --json
mudroom vault export a ~/a.mudroom --json
mudroom vault import ~/a.mudroom imported --json
mudroom vault gc --yes --json
mudroom doctor --setup --json
mudroom completion bash --json
mudroom completion --values forks --json
mudroom doctor --certify --json
mudroom keeper status --json
mudroom keeper stop --json
TOKEN=not-a-real-token mudroom net credential TOKEN api.github.com --from env --json
mudroom vault archive --json
""".strip().splitlines()
)

NOT_PRINTED = {
    "mudroom.image/1": "takes a container engine: tests/ext/containers/engine",
    "mudroom.images/1": "takes a container engine: tests/ext/containers/engine",
    "mudroom.serve/1": "of a server: tests/ext/web",
    "mudroom.served/1": "of a server: `/api/v1/openapi.json`",
    "mudroom.mcp/1": "of a server: tests/ext/agents/mcp",
    "mudroom.net-open/1": "of a command that serves: tests/cli/net",
}
"""Objects that no command of the list prints, and the place that has them."""

KNOWN: Mapping[str, Any] = {
    "approval": {"type": ["object", "null"]},
    "checkpoint": {"type": ["string", "null"]},
    "signal": {"type": ["integer", "null"]},
    "undo": {"type": ["string", "null"]},
    "use": {"type": ["object", "null"]},
    "applied": {"type": ["object", "null"]},
}
"""Keys, wherever they stand, that may hold more than the commands of the list show."""

MAPS = frozenset({"actions", "counts", "workers", "uploads", "streams", "capabilities", "classes", "by_fork"})
"""Keys whose values have keys that are names."""


def printed(root: Path, commands: Iterable[str] = COMMANDS) -> dict[str, list[tuple[str, Any]]]:
    """Run the commands; return what each printed, with its verb, by the schema (empty: the object names none)."""
    machine = Machine(root)
    machine.new_project("app")
    found: dict[str, list[tuple[str, Any]]] = {}
    for command in commands:
        done = machine.run(f"{command} 2>/dev/null")
        for value in _values(done.printed, command) if command.startswith(("mudroom", "TOKEN")) else ():
            name = value.get("schema", "") if isinstance(value, dict) else ""
            found.setdefault(name or "", []).append((_verb(command), value))
    return found


def _values(text: str, command: str) -> list[Any]:
    """Return the object that a command has printed, or the objects, one a line."""
    try:
        return [json.loads(text)]
    except ValueError:
        pass
    try:
        values = [json.loads(line) for line in text.splitlines()]
    except ValueError:
        raise AssertionError(f"{command}: no JSON: {text!r}") from None
    assert values or command.endswith("log --json"), f"{command} printed nothing"
    return values


def _verb(command: str) -> str:
    words = command[command.index("mudroom") :].split(" -- ")[0].split()
    verbs = [word for word in words[1:3] if not word.startswith("-")]
    sub = {"fork", "vault", "net", "policy", "agent", "hook", "try", "fleet", "keeper", "log"}
    return " ".join(verbs if verbs[:1] and verbs[0] in sub else verbs[:1])


def infer(values: Iterable[Any], key: str = "") -> dict[str, Any]:
    """Return the schema of values that stand at one place."""
    values = list(values)
    if key in KNOWN:
        return dict(KNOWN[key])
    kinds = {_kind(value) for value in values}
    if kinds <= {"null"}:
        return {}
    shape: dict[str, Any] = {"type": sorted(kinds)[0] if len(kinds) == 1 else sorted(kinds)}
    if "number" in kinds and "integer" in kinds:
        rest = sorted(kinds - {"integer"})
        shape["type"] = rest[0] if len(rest) == 1 else rest
    objects = [value for value in values if isinstance(value, dict)]
    if objects and key in MAPS:
        shape["additionalProperties"] = infer([value for each in objects for value in each.values()])
    elif objects:
        keys = sorted({name for each in objects for name in each})
        shape["properties"] = {name: infer([each[name] for each in objects if name in each], name) for name in keys}
        shape["required"] = [name for name in keys if all(name in each for each in objects)]
        shape["additionalProperties"] = False
    items = [item for value in values if isinstance(value, list) for item in value]
    if items:
        shape["items"] = infer(items)
    return shape


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def lines_of(schemas: Mapping[str, Any]) -> str:
    """Return the text of docs/json.schema.json: a line for each definition."""
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(shape)}" for name, shape in schemas["$defs"].items())
    head = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in schemas.items() if key != "$defs")
    return f'{{\n{head} "$defs": {{\n{rows}\n }}\n}}\n'


def document(found: Mapping[str, list[tuple[str, Any]]]) -> dict[str, Any]:
    """Return docs/json.schema.json: a definition for each schema, with the verbs that print it."""
    definitions = {}
    for name in sorted(found):
        if name:
            shape = infer([value for _verb, value in found[name]])
            shape["properties"]["schema"] = {"const": name}
            definitions[name] = {"description": ", ".join(sorted({verb for verb, _value in found[name]}))} | shape
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "objects that mudroom prints with --json; made by dev/docs --update",
        "$defs": definitions,
    }

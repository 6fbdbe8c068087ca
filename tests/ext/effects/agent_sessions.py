"""Sessions of real agents that push, open a pull request, publish and mail at hosts that hold: what each request got.

    python tests/ext/effects/agent_sessions.py [AGENT]…      installed by dev/agents --fetch, or at MUDROOM_AGENTS

A scripted model plays the steps by the agent's own tools. It prints a table, and fails if a server had an effect before
the apply, if a receipt was not followed by the effect, or if a refusal had no words.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
if __name__ == "__main__":
    sys.path[:0] = [
        str(HERE),
        *(str(ROOT / "tests" / name) for name in ("net", "ext/inspection", "ext/agents/real", "")),
    ]

from api import Api  # noqa: E402
from forge import Forge, git  # noqa: E402
from model_server import ModelServer  # noqa: E402
from post_office import PostOffice  # noqa: E402
from real_agents import AGENTS, RealAgent, Try  # noqa: E402
from registry import BOUNDARY, Registry, tarball, upload_form  # noqa: E402
from scenario import Step  # noqa: E402

from town import Town  # noqa: E402

_MAIL = """
import smtplib
with smtplib.SMTP("127.0.0.1", {mail}) as server:
    server.sendmail("me@example.com", ["bob@example.com"], "Subject: Hi\\n\\nIt is done.\\n")
print("mailed")
"""
_JSON = "-H 'Content-Type: application/json'"
_MERGE = "-H 'Content-Type: application/merge-patch+json'"
_FORM = f"-H 'Content-Type: multipart/form-data; boundary={BOUNDARY}' --data-binary @form"
_NPM = "(cd pkg && npm {} --no-update-notifier 2>&1)"
_UPGRADE = "-H 'Connection: Upgrade' -H 'Upgrade: websocket'"


def _curl(options: str, path: str, server: str = "API") -> str:
    """qwen loses the output of a command that ends at once on a busy machine."""
    return f"curl -sS -w ' %{{http_code}}' {options} http://127.0.0.1:{server}{path}; sleep 0.3"


HELD = {
    "push": "git checkout -qb fix && sed -i 's/a - b/a + b/' calc.py && git commit -qam fix && git push origin fix",
    "tag": "git tag v1 && git push origin v1",
    "forced push": "git commit -q --amend -m better && git push -f origin fix",
    "deleted branch": "git push origin :old",
    "pull request": _curl(f'{_JSON} -d \'{{"head": "fix"}}\'', "/pulls"),
    "PUT": _curl(f"-X PUT {_JSON} -d '{{\"b\": 2}}'", "/items/new"),
    "PATCH": _curl(f"-X PATCH {_MERGE} -d '{{\"a\": 2}}'", "/items/old"),
    "POST with a key": _curl(f"{_JSON} -H 'Idempotency-Key: k' -d '{{}}'", "/orders"),
    "npm publish": _NPM.format("publish"),
    "upload to an index": _curl(_FORM, "/legacy/", "REGISTRY"),
    "mail": "python3 mail.py",
    "DELETE": _curl("-X DELETE", "/items/old"),
}
READ = {
    "fetch": "git fetch origin && git ls-remote origin",
    "GET": _curl("", "/items/old"),
    "npm view": _NPM.format("view tiny version"),
}
REFUSED = {
    "comment": _curl(f'{_JSON} -d \'{{"body": "x"}}\'', "/issues/1/comments"),
    "GraphQL mutation": _curl(f'{_JSON} -d \'{{"query": "mutation {{ x }}"}}\'', "/graphql"),
    "dist-tag": _curl(f"-X PUT {_JSON} -d '\"1.0.0\"'", "/-/package/tiny/dist-tags/next", "REGISTRY"),
    "websocket": _curl(_UPGRADE, "/socket"),
}
_RECEIPTS = ("held: ", '"held":', "mailed", " 200", "+ tiny@1.0.0")


def session(agent: RealAgent, root: Path, town: Town) -> Counter[str]:
    """Play all steps. Return how many requests were held, read and refused, and what was wrong."""
    here, office = Try(root / "place", agent), PostOffice()
    forge, registry, api = Forge(root / "forge"), Registry(root / "registry"), Api(root / "api")
    upstream = forge.repository()
    git("push", "-q", str(upstream), "main", "main:old", at=here.project)
    ports = {name: town.serve(server.talk) for name, server in (("forge", forge), ("registry", registry), ("api", api))}
    ports["mail"] = office.open()
    here.command("git", "remote", "add", "origin", f"http://127.0.0.1:{ports['forge']}/team/app.git")
    for name, value in (("user.name", "A"), ("user.email", "a@example.com")):
        here.command("git", "config", name, value)
    (here.project / "pkg").mkdir()
    place = f"//127.0.0.1:{ports['registry']}/"
    (here.project / "pkg/package.json").write_text('{"name": "tiny", "version": "1.0.0"}')
    (here.project / "pkg/.npmrc").write_text(f"registry=http:{place}\n{place}:_authToken=none\n")
    (here.project / "form").write_bytes(upload_form("other", "1.0", "other-1.0.tar.gz", tarball({"a": "b"})))
    (here.project / "mail.py").write_text(_MAIL.format(**ports))
    here.mudroom("net", "hold", f"127.0.0.1:{ports['forge']},{ports['registry']},{ports['mail']}")
    words = ("PUT", "PATCH", "DELETE", "POST=Idempotency-Key", "POST=.head")
    here.mudroom("net", "hold", f"127.0.0.1:{ports['api']}", *words)
    scripts = {**HELD, **READ, **REFUSED}
    order = list(scripts)
    for host, port in ports.items():
        scripts = {name: script.replace(host.upper(), str(port)) for name, script in scripts.items()}
    commands = (Step(name, scripts[name]) for name in order)
    steps = here._ended((*commands, Step("finish", content="Done.")))
    before = dict(api.things)

    def done() -> int:
        return len(registry.files) + len(api.done) + len(office.taken)

    seen: Counter[str] = Counter()
    with ModelServer(steps) as server:
        here.prepare(server)
        refs = forge.refs()
        ended = here.inside(server)
    seen["steps"] = len(server.played())
    seen["early"] = done() + (forge.refs() != refs) + (api.things != before)
    for number, name in enumerate(order):
        said = server.results.get(number, "").replace("\\", "")  # some agents tell the output as JSON
        kind = "held" if name in HELD else "read" if name in READ else "refused"
        is_so = "this cannot be held: " in said if kind == "refused" else "cannot be held" not in said
        is_so = is_so and (kind != "held" or any(word in said for word in _RECEIPTS))
        seen[kind if is_so else "wrong"] += 1
        if not is_so:
            sys.stderr.write(f"{agent.name}: {name}: {said[:400]!r}\n")
    if seen["steps"] < len(steps):
        sys.stderr.write(f"{agent.name}: {ended.output[-1500:]}\n{server.errors}\n")
    rows = json.loads(here.mudroom("diff", agent.name, "--json"))
    seen["rows"] = len(rows["pushes"])
    applied = here.run([sys.executable, "-m", "mudroom", "apply", agent.name, "--yes"], here.environ)
    seen["sent"] = done() + len(set(refs.items()) ^ set(forge.refs().items()))
    if applied.code or seen["sent"] != 11:
        sys.stderr.write(f"{agent.name}: apply: {applied.output[-2500:]}\n")
    here.close()
    office.close()
    return seen


COLUMNS = ("steps", "held", "read", "refused", "wrong", "early", "rows", "sent")


def main(names: list[str]) -> int:
    wrong = 0
    for agent in (agent for agent in AGENTS if agent.version and (not names or agent.name in names)):
        with tempfile.TemporaryDirectory(prefix="sessions-") as folder, Town(Path(folder)) as town:
            seen = session(agent, Path(folder), town)
        sys.stdout.write(f"| {agent.name} {agent.version} | " + " | ".join(str(seen[c]) for c in COLUMNS) + " |\n")
        sys.stdout.flush()
        wrong += seen["wrong"] + seen["early"]
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

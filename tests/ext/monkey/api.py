"""Two monkeys that have the token, and ask the API of a running server for anything, at the same time.

In a round each asks for a few things. Between two rounds all that takes a while has ended, and what is in the project
then is what it was, or what exactly those applies that said so have made of it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from browser import Site, serving

from conftest import Place, full_listing
from monkey.chance import Chance, Walk
from monkey.model import Wish, changed, in_repository, with_what_goes_along, wrong_after
from monkey.world import OUTSIDE, Decided, World, decided_of, wishes_of
from mudroom.errors import MudroomError
from mudroom.ext.web.api.endpoint import id_of

HANGS = 10.0
"""Seconds within which everything is answered."""
FORKS = ("agent", "two", "three")
HOSTILE = ("..", ".", "%2e%2e", "a/b", "\0", "x" * 300, "é", "<b>", "-rf", "agent\n", "", "AGENT")
SCRIPTS = (
    "sed -i '{n}s/.*/api {fresh}/' text.txt", "echo {fresh} > new-{n}", "rm -f code/a.py", "chmod 755 run.sh",
    "sed -i '{n}s/.*/api {fresh}/' code/a.py; printf '\\000{fresh}' > bin", "mkdir -p d/e; echo {fresh} > d/e/{n}",
    "echo {fresh} > .git/hook; ln -sfn / out; mkfifo pipe", "rm -rf code; echo {fresh} > code", "sleep 60", "exit 3",
    "echo {fresh} > package.json; echo > .envrc", "yes | head -c 200000",
)  # fmt: skip
GARBAGE = (
    b"",
    b"{",
    b"[]",
    b"null",
    b'"x"',
    b"{}",
    b'{"files": 3}',
    b"\xff\xfe",
    b'{"a":' * 5000,
    b"1e999",
    b'{"reviewed": null}',
)
LEEWAY = 8
"""Descriptors and threads that a server may have more at the end than after the first rounds."""


class Sent(NamedTuple):
    """An apply that was asked for, and what the fork held."""

    job: str
    fork: str
    body: dict[str, Any]
    wishes: dict[str, Wish] | None
    """None: it was not what was reviewed."""
    decided: Decided


class Client:
    """Asks for one thing after the other. Its own connection each time, as a hostile one might."""

    def __init__(self, monkey: Api, name: str) -> None:
        self.monkey, self.name, self.site = monkey, name, monkey.site
        self.session = monkey.place.session()
        self.project = monkey.site.project
        self.said: list[str] = []
        self.wrong: list[str] = []
        self.sent: list[Sent] = []
        self.met: Counter[int] = Counter()
        self.known: dict[str, list[Any]] = {}
        """What answers have told of, to be used again when it may be stale."""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer; None: it was refused."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        begun = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.site.port, timeout=HANGS)
        headers = {"Authorization": f"Bearer {self.site.told['token']}", "Content-Type": "application/json"}
        base = self.site.url.partition(f":{self.site.port}")[2] + "api/v1"
        asked = f"{self.name}: {method} {path} {'' if data is None else data[:200]!r}"
        try:
            connection.request(method, base + path, data, headers)
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.wrong.append(f"{asked}: no answer after {time.monotonic() - begun:.1f} s: {error!r}")
            return None
        finally:
            connection.close()
        self.met[status] += 1
        code = b"" if status < 400 else content[:120]
        self.said.append(f"{asked} -> {status} {code.decode('utf-8', 'replace')}")
        if status >= 500 or b"fault of mudroom" in content:
            self.wrong.append(f"{asked}: {status} {content[:1000]!r}")
        return json.loads(content) if status < 300 and answer.headers.get_content_type() == "application/json" else None

    def at(self, chance: Chance) -> str:
        fork = any_fork(chance) if chance.random() < 0.95 else chance.one(HOSTILE)
        return f"/projects/{self.project}/forks/{quote(fork, safe='')}"

    def remember(self, what: str, value: Any) -> None:
        if value:
            self.known[what] = [value, *self.known.get(what, [])][:4]

    def recalled(self, what: str, chance: Chance) -> Any:
        """Most often the newest; else an older one, or nothing that is so."""
        known = self.known.get(what, [])
        return known[0] if known and chance.random() < 0.7 else chance.one([*known, chance.one(HOSTILE)])

    def act(self, chance: Chance, *, may_land: bool) -> None:
        acts = {name: weight for name, (weight, lands, _do) in ACTS.items() if may_land or not lands}
        ACTS[chance.weighed(acts)][2](self, chance)


# --- what they ask for ---


def any_fork(chance: Chance) -> str:
    """Most often the first, so that there is something in it."""
    return chance.weighed(dict(zip(FORKS, (6, 2, 1), strict=True)))


def _look(client: Client, chance: Chance) -> None:
    at = client.at(chance)
    changes = client.ask("GET", at + "/changes")
    rows = [row["id"] for row in (changes or {}).get("rows", [])]
    client.remember(at, changes)
    file = quote(chance.one([*rows, id_of(b"../../etc/passwd"), "!!", id_of(b"\xff\0")]))
    what = chance.one(("diff", "text", "blob", "standing", "conflicts", "conflict", "checkpoints", "output"))
    side, odd = (
        chance.one(("old", "new", "both")),
        chance.one(("", "&first=-1", "&first=9999999999999999999", "&context=-5", "&x=%00")),
    )
    client.ask("GET", f"{at}/{what}?file={file}&side={side}{odd}")


def _overview(client: Client, chance: Chance) -> None:
    at = f"/projects/{client.project if chance.random() < 0.9 else quote(chance.one(HOSTILE), safe='')}"
    paths = ("", "/commands?all=true", "/usage", "/events?grep=%5B", "/events?before=-1", "/flows?count=-3", "/jobs")
    client.ask("GET", chance.one(("/questions?ended=true", "/folders", "/projects", "/me", at + chance.one(paths))))


def _garbage(client: Client, chance: Chance) -> None:
    fork = f"/projects/{client.project}/forks/{chance.one(FORKS)}"
    path = chance.one(("/apply", "/decide", "/rollback", "/commands", "/checkpoints", "/rename", "/no"))
    client.ask(
        chance.one(("POST", "PUT", "PATCH", "DELETE")) if path == "/no" else "POST", fork + path, chance.one(GARBAGE)
    )
    client.ask(
        "POST",
        chance.one(("/folders/measure", "/projects")),
        {"id": chance.one((id_of(b"/"), id_of(b"/proc/self"), "", "%%", id_of(b"..")))},
    )


def _fork(client: Client, chance: Chance) -> None:
    body: dict[str, Any] = {"name": chance.one((*FORKS, *FORKS, chance.one(HOSTILE)))}
    if chance.random() < 0.4:
        body["parent"] = any_fork(chance)
    if chance.random() < 0.2:
        body["at"] = client.recalled("checkpoint", chance)
    if chance.random() < 0.1:
        body["snapshot"] = True
    client.ask("POST", f"/projects/{client.project}/forks", body)


def _start(client: Client, chance: Chance) -> None:
    script = chance.one(SCRIPTS).format(
        n=int(chance.random() * 24) + 1, fresh=f"{client.monkey.walk.number}-{chance.random()}"
    )
    command = (
        ["sh", "-c", script] if chance.random() < 0.9 else chance.one(([], ["\0"], ["/no/such"], ["x" * 70000], [""]))
    )
    found = client.ask(
        "POST", client.at(chance) + "/commands", {"command": command, "timeout": chance.one((None, 5.0, -1.0, 0.0))}
    )
    client.remember("command", (found or {}).get("id"))


def _end(client: Client, chance: Chance) -> None:
    command = quote(str(client.recalled("command", chance)), safe="")
    client.ask("GET", f"/projects/{client.project}/commands/{command}/output")
    client.ask("POST", f"/projects/{client.project}/commands/{command}/end", {"grace": chance.one((0.0, 0.1, -5.0))})


def _checkpoint(client: Client, chance: Chance) -> None:
    name = chance.one(("one", "two", f"c{client.monkey.walk.number}", chance.one(HOSTILE)))
    found = client.ask("POST", client.at(chance) + "/checkpoints", {"name": name})
    client.remember("checkpoint", (found or {}).get("name"))


def _rollback(client: Client, chance: Chance) -> None:
    at, point = client.at(chance), str(client.recalled("checkpoint", chance))
    found = client.ask("GET", f"{at}/rollback?checkpoint={quote(point, safe='')}")
    client.remember("preview", (found or {}).get("fingerprint"))
    client.ask("POST", at + "/rollback", {"checkpoint": point, "fingerprint": str(client.recalled("preview", chance))})


def _decide(client: Client, chance: Chance) -> None:
    at = client.at(chance)
    found = client.ask("GET", at + "/conflicts")
    for one in (found or {}).get("conflicts", []):
        client.remember("versions", one["versions"])
    some = (found or {}).get("conflicts", [])
    if some:
        one = chance.one(some)
        take = chance.one(("ours", "theirs", "both", "delete", "regions", "undecide"))
        regions = [chance.one(("ours", "theirs", "both", ["by hand"]))] * chance.one((one["places"] or 0, 0, 99))
        versions = one["versions"] if chance.random() < 0.8 else str(client.recalled("versions", chance))
        client.ask(
            "POST",
            at + "/decide",
            {"id": one["id"], "versions": versions, "take": take, "regions": regions if take == "regions" else []},
        )


def _answer(client: Client, chance: Chance) -> None:
    name = quote(chance.one(HOSTILE), safe="")
    client.ask("POST", f"/projects/{client.project}/questions/{name}", {"allow": True, "keep": True, "rule": "*"})


def _discard(client: Client, chance: Chance) -> None:
    reviewed = (client.recalled(client.at(chance), chance) or {}) if chance.random() < 0.5 else {}
    given = reviewed.get("fingerprint", "") if isinstance(reviewed, dict) else "nonsense"
    client.ask("DELETE", f"{client.at(chance)}?end={chance.one(('true', 'false'))}&reviewed={given}")


def _rename(client: Client, chance: Chance) -> None:
    client.ask("POST", client.at(chance) + "/rename", {"name": chance.one((*FORKS, chance.one(HOSTILE)))})


def _verify(client: Client, _chance: Chance) -> None:
    client.ask("POST", f"/projects/{client.project}/journal/verify")


def _apply(client: Client, chance: Chance) -> None:
    fork = any_fork(chance)
    at = f"/projects/{client.project}/forks/{fork}"
    if chance.random() < 0.75:
        client.remember(at, client.ask("GET", at + "/changes"))
    seen = client.recalled(at, chance)
    seen = seen if isinstance(seen, dict) else {"fingerprint": "nonsense", "rows": []}
    files: Any = None
    if chance.random() < 0.7:
        files = [picked(row, chance) for row in seen["rows"] if chance.random() < 0.5]
        files += (
            [{"id": chance.one((id_of(b"../x"), id_of(b".git/config"), "", "??"))}] if chance.random() < 0.05 else []
        )
    body = {"reviewed": seen["fingerprint"], "files": files}
    body |= {name: True for name in ("git", "backups", "markers") if chance.random() < 0.06}
    wishes, decided = client.monkey.known_of(client, fork, body)
    job = client.ask("POST", at + "/apply", body)
    if job is not None:
        client.sent.append(Sent(job["id"], fork, body, wishes, decided))


def picked(row: dict[str, Any], chance: Chance) -> dict[str, Any]:
    found: dict[str, Any] = {"id": row["id"]}
    if row["hunks"] and chance.random() < 0.5:
        found["blocks"] = sorted({int(chance.random() * 4) for _one in range(2)})
    if chance.random() < 0.03:
        found["blocks"] = chance.one(([-1], [9999999], [0, 0]))
    if chance.random() < 0.2:
        found["mode"] = False
    return found


def _turn(client: Client, chance: Chance) -> None:
    found = client.ask("GET", f"/projects/{client.project}")
    names = [
        one["undo"] if "undo" in one else one.get("id", one.get("name")) for one in (found or {}).get("applies", [])
    ]
    name = chance.one(["", *names[:3], chance.one(HOSTILE)])
    client.ask("POST", f"/projects/{client.project}/{chance.one(('undo', 'undo', 'redo'))}", {"apply": name})


ACTS: dict[str, tuple[float, bool, Callable[[Client, Chance], None]]] = {
    "look": (5, False, _look), "overview": (2, False, _overview), "garbage": (1.5, False, _garbage),
    "fork": (2, False, _fork), "start": (7, False, _start), "end": (2, False, _end),
    "checkpoint": (1.5, False, _checkpoint), "rollback": (1.5, False, _rollback), "decide": (3, False, _decide),
    "answer": (0.5, False, _answer), "discard": (0.8, False, _discard), "rename": (0.4, False, _rename),
    "verify": (0.3, False, _verify), "apply": (9, True, _apply), "turn": (3, True, _turn),
}  # fmt: skip
"""How often, whether the project may be written to by it, and what."""


# --- the round ---


class Api:
    def __init__(self, place: Place, walk: Walk) -> None:
        self.place, self.walk = place, walk
        self.world = World(place, walk)
        self.site: Site
        self.landed = 0
        self.met: Counter[int] = Counter()
        self.first: tuple[int, int] | None = None
        """Descriptors and threads of the server after some rounds."""

    def go(self) -> None:
        self.world.run("echo first > first; sed -i -e '3s/.*/the fork/' -e '15s/.*/the fork, too/' text.txt")
        around = self.around()
        with serving(self.place) as self.site:
            clients = [Client(self, name) for name in ("A", "B")]
            while (chance := self.walk.next()) is not None:
                self.round(clients, chance)
                if self.walk.number == 10:
                    self.first = self.held()
            self.end(clients)
            self.walk.require(changed(around, self.around()), "what is outside the project and the vault has changed")
        self.world.close()

    def around(self) -> dict[str, Any]:
        found: dict[str, Any] = dict(full_listing(self.place.home))
        found |= {f"/{name}": ("there", 0, b"") for name in os.listdir(self.place.root)}
        return {name: ("file", 0, repr(entry).encode()) for name, entry in found.items()}

    def round(self, clients: list[Client], chance: Chance) -> None:
        if chance.random() < 0.7:
            what = "the user" if chance.random() < 0.3 else "the agent"
            with contextlib.suppress(MudroomError, OSError):
                self.walk.say(f"{what}: {OUTSIDE[what][1](self.world, chance)}")
        lander = chance.one((0, 0, 1, 1, 2))  # 2: both may
        before = {job["id"] for job in self.jobs()}

        def acts(number: int) -> None:
            mine = Chance(self.walk.seed, self.walk.number * 1000 + number)
            for _act in range(3):
                clients[number].act(mine, may_land=lander in (number, 2))

        threads = [threading.Thread(target=acts, args=(number,)) for number in range(len(clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        jobs = [job for job in self.ended() if job["id"] not in before]
        self.told(clients, jobs)
        self.check(clients, jobs)

    def told(self, clients: list[Client], jobs: list[dict[str, Any]]) -> None:
        for client in clients:
            for line in client.said:
                self.walk.say(line)
            client.said.clear()
        for job in jobs:
            self.walk.say(
                f"job {job['id']} {job['what']}: {job['state']} {job['landed'] or job['problem'] or ''}"[:600]
            )
        for client in clients:
            self.walk.require(client.wrong, "an answer that must not be")
            self.met += client.met
            client.met.clear()

    def check(self, clients: list[Client], jobs: list[dict[str, Any]]) -> None:
        faults = [str(job["problem"]) for job in jobs if job["problem"] and "mudroom failed" in job["problem"]["error"]]
        self.walk.require(faults, "a fault in a job")
        broken = [
            str(job["result"])
            for job in jobs
            if job["what"] == "verify-journal" and not (job["result"] or {}).get("intact")
        ]
        self.walk.require(broken, "the journal does not verify")
        sent = {one.job: one for client in clients for one in client.sent}
        for client in clients:
            client.sent.clear()
        landed = [job for job in jobs if job["landed"] and job["landed"]["state"] != "unverified"]
        news = self.world.look_at_applies()
        if not landed:
            self.walk.require([f"{name} is {state}" for name, state in news.items()], "nobody has said that it landed")
            self.world.require_still("a round in which nothing landed")
        elif len(landed) == 1 and landed[0]["what"] == "apply":
            self.check_apply(sent[landed[0]["id"]], list(news))
        elif len(landed) == 1 and landed[0]["what"] == "undo":
            for name in news:
                self.world.note_undone(name)
        else:
            for name in news:
                self.world.landings.pop(name, None)
        self.world.tree = self.world.now()

    def check_apply(self, sent: Sent, names: list[str]) -> None:
        self.landed += 1
        before, now = self.world.tree, self.world.now()
        if sent.wishes is not None and not {"git", "backups", "markers"} & sent.body.keys():
            wrong = wrong_after(before, now, chosen_of(sent), sent.decided)
            self.walk.require(wrong, f"job {sent.job} is not what was asked for")
        for name in names:
            self.world.note_landing(name)

    def known_of(self, client: Client, fork: str, body: dict[str, Any]) -> tuple[dict[str, Wish] | None, Decided]:
        session = client.session
        try:
            found = wishes_of(session, fork)
            decided = decided_of(session, fork, self.world.tree)
            is_same = session.changes.fingerprint(fork) == body["reviewed"]
        except (MudroomError, OSError):
            return None, {}
        return (found if is_same else None), decided

    # --- the server ---

    def jobs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.site.get(f"/projects/{self.site.project}/jobs")
        return found

    def ended(self) -> list[dict[str, Any]]:
        """When none runs any more."""
        gate, until = threading.Event(), time.monotonic() + HANGS
        while True:
            found = self.jobs()
            if all(job["state"] != "running" for job in found):
                return found
            gate.wait(0.01)
            if time.monotonic() > until:
                self.walk.fail(f"a job runs and runs: {found}")

    def held(self) -> tuple[int, int]:
        at = f"/proc/{self.site.process.pid}"
        return len(os.listdir(at + "/fd")), len(os.listdir(at + "/task"))

    def end(self, clients: list[Client]) -> None:
        for command in self.site.get(f"/projects/{self.site.project}/commands")["commands"]:
            clients[0].ask("POST", f"/projects/{self.site.project}/commands/{command['id']}/end", {"grace": 0.0})
        clients[0].ask("POST", f"/projects/{self.site.project}/journal/verify")
        self.told(clients, [])
        (verified,) = [job for job in self.ended() if job["what"] == "verify-journal"][-1:]
        self.walk.require([] if verified["result"]["intact"] else [str(verified)], "the journal does not verify")
        last = self.held()
        self.walk.say(f"descriptors and threads: {self.first}, then {last}; {dict(self.met)}; {self.landed} applies")
        if self.first is not None and any(now > was + LEEWAY for was, now in zip(self.first, last, strict=True)):
            files = sorted(
                os.readlink(one.path)
                for one in os.scandir(f"/proc/{self.site.process.pid}/fd")
                if os.path.lexists(one.path)
            )
            self.walk.fail(
                f"the server holds more and more: {self.first} became {last}: {Counter(files).most_common(8)}"
            )


def chosen_of(sent: Sent) -> dict[str, Wish]:
    """Of what the fork held, what was asked for."""
    wishes = sent.wishes or {}
    if sent.body["files"] is None:
        return {path: wish for path, wish in wishes.items() if not in_repository(path)}
    ids = {id_of(os.fsencode(path)): path for path in wishes}
    found = {}
    for one in sent.body["files"]:
        path = ids[one["id"]]
        blocks = one.get("blocks")
        found[path] = wishes[path]._replace(
            blocks=None if blocks is None else frozenset(blocks), mode=one.get("mode", True)
        )
    # Of a repository that nobody has asked for, hooks and settings land that are named, and nothing else.
    found = {path: wish._replace(known=wish.known and not in_repository(path)) for path, wish in found.items()}
    return with_what_goes_along(found, wishes)

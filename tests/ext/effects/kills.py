"""Kill applies while they send held effects, and count what the servers have got.

    python tests/ext/effects/kills.py [COUNT] [SEED] [--write] [--only CARRIER]…

Each kill is a SIGKILL of a process that applies one held effect; afterwards other processes apply it until it waits no
longer. Of ten kills nine are aimed: the server stands at a point of the send, and the kill comes there. Then the server
goes on (``after``), or stands while the next apply runs (``meanwhile``), or until the next apply stands there, too
(``overlap``). The others come at a random moment. Then each connection is cut at each point, and servers answer 500
after they have done it. ``--write`` stores the tables in docs/evidence/EFFECTS.md.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(ROOT / "tests/net"), str(ROOT / "tests/ext/inspection"), str(ROOT / "tests")]

import pytest  # noqa: E402
from forge import ENVIRONMENT, git  # noqa: E402
from post_office import PostOffice  # noqa: E402
from registry import BOUNDARY, npm_document, tarball, upload_form  # noqa: E402
from ssh_host import USER, SshHost  # noqa: E402
from stops import WAIT, Stops  # noqa: E402
from yard import COMMIT, Yard  # noqa: E402

from clocks import give_way  # noqa: E402
from mudroom.core.network.host_rules import parse_rule  # noqa: E402
from mudroom.core.settings import Settings  # noqa: E402
from mudroom.ext.effects import upstream  # noqa: E402
from mudroom.session import Session  # noqa: E402
from mudroom.session.confinement import command_gate  # noqa: E402
from mudroom.session.confinement.host_approver import HostAnswers  # noqa: E402
from test_held_mail import SCRIPT  # noqa: E402
from town import Town  # noqa: E402

PAGE = ROOT / "docs/evidence/EFFECTS.md"
_APPLIES = 3
"""Applies after a kill."""
_WAYS = ("after", "meanwhile", "overlap")
_HTTP = ("read", "got", "done", "answer")


# --- the process that applies ---


class Zygote:
    """A process without threads, which forks one for each apply."""

    def __init__(self) -> None:
        self._here, there = socket.socketpair()
        self._pid = os.fork()
        if not self._pid:
            self._here.close()
            _serve(there)
            os._exit(0)
        there.close()
        self._lines = self._here.makefile("rb")

    def start(self, place: Mapping[str, Any], delay: float | None = None) -> int:
        """Start an apply of the fork's effects, which is killed after ``delay``. Return its process."""
        self._here.sendall(json.dumps([place, delay]).encode() + b"\n")
        return int(self._lines.readline())

    def is_over(self) -> bool:
        return bool(select.select([self._here], [], [], 0)[0])

    def end(self) -> list[str] | None:
        """Wait for the apply. Return the states that it has told; None if it was killed."""
        answer: list[str] | None = json.loads(self._lines.readline())
        return answer

    def apply(self, place: Mapping[str, Any], delay: float | None = None) -> list[str] | None:
        self.start(place, delay)
        return self.end()

    def close(self) -> None:
        self._lines.close()
        self._here.close()
        os.waitpid(self._pid, 0)


def _serve(channel: socket.socket) -> None:
    for line in channel.makefile("rb"):
        place, delay = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.write(write, json.dumps(_apply(place)).encode())
            os._exit(0)
        channel.sendall(b"%d\n" % child)
        os.close(write)
        ready = select.select([read], [], [], delay)[0]
        if not ready:
            os.kill(child, signal.SIGKILL)
        answer = os.read(read, 1 << 20)
        os.waitpid(child, 0)
        os.close(read)
        channel.sendall((answer or b"null") + b"\n")


def _apply(place: Mapping[str, Any]) -> list[str]:
    vars(upstream)["look_up"] = lambda _host, _port: [bytes((127, 0, 0, 1))]
    with session_at(place) as session:
        session.changes.recover()
        left = [row.name for row in session.changes.pushes("f")]
        done = session.changes.apply("f", pushes=left, exact=True).applied.pushes if left else ()
        return [row.state for row in done]


def session_at(place: Mapping[str, Any]) -> Session:
    rules = tuple(parse_rule(text, "hold", "kills", private=True) for text in place["rules"])
    root = Path(place["root"])
    environ = {**ENVIRONMENT, "PATH": place["path"], "SSL_CERT_FILE": str(root / "roots.pem")}
    return Session.open(
        os.fsencode(root / "project"),
        state=os.fsencode(root / "state"),
        home=os.fsencode(root / "home"),
        environ={name.encode(): value.encode() for name, value in environ.items()},
        settings=Settings(
            network="gate", hosts=rules, environment=tuple(name.encode() for name in ENVIRONMENT if "GIT_" in name)
        ),
        hosts=HostAnswers(lambda: rules),
    )


# --- carriers ---


class Carrier(NamedTuple):
    script: str
    """Makes the effect in the sandbox."""
    points: Sequence[str]
    """At which its server stands."""
    reset: Callable[[], None]
    """Empties the server."""
    effects: Callable[[], int]
    """Times that the server has done it."""


class Street:
    """All servers, and a held effect of each kind."""

    def __init__(self, root: Path, town: Town) -> None:
        self.yard = yard = Yard(root, town)
        self.office = PostOffice(yard.pem)
        self.held = Path()
        self.stops = Stops(self.is_sending)
        self._connections = 0
        for server in (yard.forge, yard.registry, yard.api, self.office):
            server.stand = self.stops.at
        ssh, mail = SshHost(root / "ssh", yard.forge.root), self.office.open()
        with (ssh.root / "sshd_config").open("a") as config:
            config.write(f"ForceCommand {self.stops.command(root / 'force')}\n")
        self.ssh_calls = str(ssh.root / "config")
        ssh_port = town.serve(self._counted(ssh.talk))
        (yard.project / "mail.py").write_text(SCRIPT)
        content = tarball({"package.json": "{}"})
        (yard.project / "body").write_bytes(npm_document("tiny", "1.0.0", content))
        (yard.project / "form").write_bytes(upload_form("tiny", "1.0", "tiny-1.0.tar.gz", content))
        self.stops.put_hooks(yard.upstream)
        self._start = yard.forge.refs()["refs/heads/main"]
        self._old = dict(yard.api.things)
        self.place = {
            "root": str(root),
            "path": f"{ssh.path}:{os.environ['PATH']}",
            "rules": [
                f"forge.example:{yard.port},{yard.tls_port},{ssh_port},{mail}",
                f"registry.example:{yard.registry_port}",
                f"api.example:{yard.api_port} PUT DELETE PATCH POST=Idempotency-Key",
            ],
        }
        push = COMMIT + "git push -q {} HEAD:main"
        over_ssh = f"ssh://{USER}@forge.example:{ssh_port}{yard.forge.root}/team/app.git"
        curl, registry = "curl -sS --fail", f"http://registry.example:{yard.registry_port}"
        api = f"{curl} https://api.example:{yard.api_port}"
        patch = "-X PATCH -H 'Content-Type: application/json' -d '{\"a\":2}'"
        npm = f"{curl} -T body -H 'Content-Type: application/json' {registry}/tiny"
        form = f"-H 'Content-Type: multipart/form-data; boundary={BOUNDARY}' --data-binary @form"
        ordered = self._reset_api, lambda: len(yard.api.done)
        pushed = self._reset_forge, self._received
        published = self._reset_registry, lambda: len(yard.registry.files)
        taken = self.office.taken
        hooks = ("unpacked", "locked", "moved")
        self.carriers = {
            "git push, ssh": Carrier(push.format(over_ssh), ("read", *hooks, "reported"), *pushed),
            "git push, https": Carrier(push.format(yard.url(tls=True)), (*_HTTP, *hooks), *pushed),
            "npm publish": Carrier(npm, _HTTP, *published),
            "twine upload": Carrier(f"{curl} {form} {registry}/legacy/", _HTTP, *published),
            "PUT": Carrier(f"{api}/items/new -X PUT -d x", _HTTP, *ordered),
            "DELETE": Carrier(f"{api}/items/old -X DELETE", _HTTP, *ordered),
            "PATCH, not a merge": Carrier(f"{api}/items/old {patch}", _HTTP, *ordered),
            "POST with a key": Carrier(f"{api}/orders -H 'Idempotency-Key: k' -d '{{}}'", _HTTP, *ordered),
            "mail": Carrier(
                f"{sys.executable} mail.py {mail} Hi",
                ("data", "got", "done", "answer"),
                taken.clear,
                lambda: len(taken),
            ),
        }

    def _counted(self, talk: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
        def counted(client: socket.socket) -> None:
            self._connections += 1
            try:
                talk(client)
            finally:
                self._connections -= 1

        return counted

    def is_sending(self) -> bool:
        """Return whether an effect is noted so now."""
        notes = self.held.glob("*/effect.json")
        with suppress(FileNotFoundError):
            return any(b'"sending"' in note.read_bytes() for note in notes)
        return False

    def settle(self) -> None:
        """Wait until no server does anything any more."""
        limit = time.monotonic() + WAIT
        while self._connections or not self.office.is_idle or self.yard.is_busy or _works_in(self.yard.upstream):
            assert time.monotonic() < limit, "a server does not end"
            give_way()

    def _received(self) -> int:
        seen = self.yard.upstream / "received"
        return len(seen.read_text().splitlines()) if seen.exists() else 0

    def _reset_forge(self) -> None:
        for lock in self.yard.upstream.rglob("*.lock"):
            lock.unlink()
        git("update-ref", "refs/heads/main", self._start, at=self.yard.upstream)
        (self.yard.upstream / "received").unlink(missing_ok=True)

    def _reset_registry(self) -> None:
        self.yard.registry.files.clear()
        self.yard.registry.manifests.clear()
        self.yard.registry.requests.clear()

    def _reset_api(self) -> None:
        self.yard.api.things = dict(self._old)
        self.yard.api.keys.clear()
        self.yard.api.outstanding.clear()
        self.yard.api.done.clear()
        self.yard.api.requests.clear()

    def hold(self, names: Sequence[str]) -> dict[str, Path]:
        """Hold each effect alone. Return copies of the folder that has held it."""
        kept = {}
        with session_at(self.place) as session:
            for number, name in enumerate(names):
                carrier = self.carriers[name]
                carrier.reset()
                session.forks.new("f")
                done = session.run([b"sh", b"-ec", carrier.script.encode()], fork="f")
                assert done.exit_code == 0, done.stderr
                self.held = Path(os.fsdecode(session.vault.fork("f").path)) / "effects"
                kept[name] = self.yard.root / f"kept-{number}"
                shutil.copytree(self.held, kept[name])
                if number < len(names) - 1:
                    session.forks.discard("f")
        return kept

    def close(self) -> None:
        self.stops.close()
        self.office.close()


def _works_in(folder: Path) -> bool:
    """Return whether a process has this directory."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == folder:
                return True
    return False


def _clients(mark: str) -> list[int]:
    """Return the processes with this word."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if mark.encode() in words and b"sshd" not in words[0]:
                found.append(int(process.name))
    return found


# --- kills ---


class Trial:
    """Kills of one carrier."""

    def __init__(self, street: Street, zygote: Zygote, name: str, kept: Path, chance: random.Random) -> None:
        self._street, self._zygote, self._kept, self._chance = street, zygote, kept, chance
        self._carrier, self._name = street.carriers[name], name
        self._spans: list[float] = []
        self.seen: Counter[str] = Counter()

    def _reset(self) -> None:
        self._carrier.reset()
        shutil.rmtree(self._street.held, ignore_errors=True)
        shutil.copytree(self._kept, self._street.held)

    def aimed(self, point: str, way: str) -> None:
        street, zygote, stops = self._street, self._zygote, self._street.stops
        self._reset()
        stops.arm(point)
        process = zygote.start(street.place)
        assert stops.wait(1, zygote.is_over), (self._name, point, zygote.end())
        while not street.is_sending():  # a mail's server stands before
            assert not zygote.is_over(), (self._name, point)
        os.kill(process, signal.SIGKILL)
        assert zygote.end() is None
        self.seen["kills"] += 1
        self.seen["inside"] += 1
        if self._name == "git push, ssh":
            limit = time.monotonic() + 1
            while _clients(street.ssh_calls) and time.monotonic() < limit:
                give_way()
            self.seen["ssh left"] += bool(_clients(street.ssh_calls))
        states: list[str] | None = None
        if way == "meanwhile":
            states = zygote.apply(street.place)
        elif way == "overlap":
            stops.arm(point)
            zygote.start(street.place)
            stops.wait(2, zygote.is_over)
            stops.let_go()
            states = zygote.end()
        stops.let_go()
        street.settle()
        self._judge(states, f"killed at {point}, {way}")

    def at_random(self) -> None:
        while len(self._spans) < 3:
            self._reset()
            began = time.monotonic()
            states = self._zygote.apply(self._street.place)
            assert states == ["sent"], (self._name, states)
            self._spans.append(time.monotonic() - began)
        self._reset()
        states = self._zygote.apply(self._street.place, self._chance.uniform(0, 0.95 * min(self._spans)))
        self.seen["kills"] += states is None
        self.seen["inside"] += states is None and self._street.is_sending()
        self._street.settle()
        self._judge(states, "killed at random")

    def cut(self, point: str, fault: str) -> None:
        street = self._street
        self._reset()
        if fault == "cut":
            street.stops.arm(point, fault)
        else:
            servers = (street.yard.forge, street.yard.registry, street.yard.api)
            for server in servers:
                server.after = lambda: 500
        states = self._zygote.apply(street.place)
        street.stops.arm("")
        for server in (street.yard.forge, street.yard.registry, street.yard.api):
            server.after = lambda: None
        self.seen["faults"] += 1
        street.settle()
        self._judge(states, f"{fault} at {point}")

    def _judge(self, states: list[str] | None, what: str) -> None:
        """Apply until nothing waits, and compare the last word with what the server has done. ``states``: what the
        last apply has told."""
        held, seen = self._street.held, self.seen
        for _again in range(_APPLIES):
            if held.exists() and os.listdir(held):
                states = self._zygote.apply(self._street.place) or states
        self._street.settle()
        done = self._carrier.effects()
        last = states[-1] if states else "sent"
        seen[last if last in ("sent", "unknown") else "other"] += 1
        seen["unknown and done"] += last == "unknown" and done > 0
        wrong = {
            "doubled": done > 1 and self._name != "PUT",
            "put again": done > 1 and self._name == "PUT",
            "lost": not done and last == "sent",
            "untold": done > 0 and last not in ("sent", "unknown"),
        }
        for column in (column for column, is_so in wrong.items() if is_so):
            seen[column] += 1
            sys.stderr.write(f"{self._name}: {what}: {column}: {states}, done {done} times\n")


COLUMNS = (
    "kills", "inside", "sent", "unknown", "unknown and done", "other", "put again", "ssh left", "doubled", "lost",
    "untold",
)  # fmt: skip
FAULTS = ("faults", "sent", "unknown", "unknown and done", "other", "put again", "doubled", "lost", "untold")


def tables(
    count: int, seed: int, only: Sequence[str], told: Callable[[str, Sequence[str], Counter[str]], object]
) -> None:
    """Kill so many applies of each carrier, and cut their connections."""
    zygote, chance = Zygote(), random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="kills-") as folder, pytest.MonkeyPatch.context() as patch:
        root = Path(folder)
        (root / "town").mkdir()
        (root / "home").mkdir()
        with Town(root / "town") as town:
            patch.setattr(command_gate, "SHARED", command_gate.SharedGates(lambda _upstream: town.gate))
            street = Street(root, town)
            try:
                names = [name for name in street.carriers if not only or name in only]
                for name, kept in street.hold(names).items():
                    trial = Trial(street, zygote, name, kept, chance)
                    cells = list(itertools.product(street.carriers[name].points, _WAYS))
                    chance.shuffle(cells)
                    for point, way in itertools.islice(itertools.cycle(cells), max(1, count * 9 // 10)):
                        trial.aimed(point, way)
                    while trial.seen["kills"] < count:
                        trial.at_random()
                    told(name, COLUMNS, trial.seen)
                    trial.seen = Counter()
                    for point in street.carriers[name].points:
                        if point != "locked":  # the lock of a git that was killed stays, and every push is refused
                            trial.cut(point, "cut")
                    if street.carriers[name].points[:1] == _HTTP[:1] and "done" in street.carriers[name].points:
                        trial.cut("done", "500")
                    told(name, FAULTS, trial.seen)
            finally:
                street.close()
                zygote.close()


def main(arguments: list[str]) -> int:
    numbers = [int(word) for word in arguments if word.isdigit()]
    count, seed = (*numbers, *(500, 1)[len(numbers) :])
    only = [word for before, word in itertools.pairwise(arguments) if before == "--only"]
    rows: dict[Sequence[str], list[str]] = {COLUMNS: [], FAULTS: []}
    wrong = 0

    def told(name: str, columns: Sequence[str], seen: Counter[str]) -> None:
        nonlocal wrong
        wrong += seen["doubled"] + seen["lost"] + seen["untold"] + seen["ssh left"]
        rows[columns].append(f"| {name} | " + " | ".join(str(seen[column]) for column in columns) + " |")
        sys.stdout.write(rows[columns][-1] + "\n")
        sys.stdout.flush()

    tables(-(-count // (len(only) or 9)), seed, only, told)
    pages = [
        "\n".join([f"| carrier | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}", *lines])
        for columns, lines in rows.items()
    ]
    if "--write" in arguments:
        head = PAGE.read_text().partition("<!-- table -->\n")[0]
        PAGE.write_text(f"{head}<!-- table -->\n" + "\n\n".join(pages) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Kill applies at random while they send held effects, and count what the servers have got.

    python tests/ext/effects/kills.py [COUNT] [SEED] [--write]

Each kill is a SIGKILL of a process that applies one held effect, at a random moment of the time that an apply takes;
afterwards other processes apply it until it waits no longer. ``--write`` stores the table in docs/evidence/EFFECTS.md.
"""

from __future__ import annotations

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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(ROOT / "tests/net"), str(ROOT / "tests/ext/inspection"), str(ROOT / "tests")]

import pytest  # noqa: E402
from forge import ENVIRONMENT, git  # noqa: E402
from post_office import PostOffice  # noqa: E402
from registry import npm_document, tarball  # noqa: E402
from ssh_host import USER, SshHost  # noqa: E402
from yard import COMMIT, Yard  # noqa: E402

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

    def apply(self, place: Mapping[str, Any], delay: float | None) -> list[str] | None:
        """Apply the fork's effects. Return their states, and what is left; None if it was killed after ``delay``."""
        self._here.sendall(json.dumps([place, delay]).encode() + b"\n")
        answer: list[str] | None = json.loads(self._lines.readline())
        return answer

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
    reset: Callable[[], None]
    """Empties the server."""
    effects: Callable[[], int]
    """Times that the server has done it."""


class Street:
    """All servers, and a held effect of each kind."""

    def __init__(self, root: Path, town: Town) -> None:
        self.yard = yard = Yard(root, town)
        self.office = PostOffice(yard.pem)
        ssh, mail = SshHost(root / "ssh", yard.forge.root), self.office.open()
        ssh_port = town.serve(ssh.talk)
        (yard.project / "mail.py").write_text(SCRIPT)
        (yard.project / "body").write_bytes(npm_document("tiny", "1.0.0", tarball({"package.json": "{}"})))
        hook = yard.upstream / "hooks/post-receive"
        hook.write_text("#!/bin/sh\nwhile read line; do echo x >> received; done\n")
        hook.chmod(0o755)
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
        curl = f"curl -sS --fail https://api.example:{yard.api_port}"
        patch = "-X PATCH -H 'Content-Type: application/json' -d '{\"a\":2}'"
        publish = f"-T body -H 'Content-Type: application/json' http://registry.example:{yard.registry_port}/tiny"
        api = self._reset_api, lambda: len(yard.api.done)
        pushed = self._reset_forge, self._received
        taken = self.office.taken
        self.carriers = {
            "mail": Carrier(f"{sys.executable} mail.py {mail} Hi", taken.clear, lambda: len(taken)),
            "git push, ssh": Carrier(push.format(over_ssh), *pushed),
            "git push, https": Carrier(push.format(yard.url(tls=True)), *pushed),
            "npm publish": Carrier(
                f"curl -sS --fail {publish}", self._reset_registry, lambda: len(yard.registry.files)
            ),
            "PUT": Carrier(f"{curl}/items/new -X PUT -d x", *api),
            "DELETE": Carrier(f"{curl}/items/old -X DELETE", *api),
            "PATCH, not a merge": Carrier(f"{curl}/items/old {patch}", *api),
            "POST with a key": Carrier(f"{curl}/orders -H 'Idempotency-Key: k' -d '{{}}'", *api),
        }

    def _received(self) -> int:
        seen = self.yard.upstream / "received"
        return len(seen.read_text().splitlines()) if seen.exists() else 0

    def _reset_forge(self) -> None:
        git("update-ref", "refs/heads/main", self._start, at=self.yard.upstream)
        (self.yard.upstream / "received").unlink(missing_ok=True)

    def _reset_registry(self) -> None:
        self.yard.registry.files.clear()
        self.yard.registry.manifests.clear()
        self.yard.registry.requests.clear()

    def _reset_api(self) -> None:
        self.yard.api.things = dict(self._old)
        self.yard.api.keys.clear()
        self.yard.api.done.clear()
        self.yard.api.requests.clear()

    def hold(self) -> dict[str, Path]:
        """Hold each effect alone. Return copies of the folder that has held it."""
        kept = {}
        with session_at(self.place) as session:
            for number, (name, carrier) in enumerate(self.carriers.items()):
                carrier.reset()
                session.forks.new("f")
                done = session.run([b"sh", b"-ec", carrier.script.encode()], fork="f")
                assert done.exit_code == 0, done.stderr
                self.held = Path(os.fsdecode(session.vault.fork("f").path)) / "effects"
                kept[name] = self.yard.root / f"kept-{number}"
                shutil.copytree(self.held, kept[name])
                if number < len(self.carriers) - 1:
                    session.forks.discard("f")
        return kept

    def close(self) -> None:
        self.office.close()


def kill(street: Street, zygote: Zygote, name: str, kept: Path, count: int, chance: random.Random) -> Counter[str]:
    """Kill ``count`` applies. Return how often each outcome was seen."""
    carrier, held = street.carriers[name], street.held
    seen: Counter[str] = Counter()
    spans: list[float] = []
    while seen["kills"] < count:
        carrier.reset()
        shutil.rmtree(held, ignore_errors=True)
        shutil.copytree(kept, held)
        began = time.monotonic()
        states = zygote.apply(street.place, None if len(spans) < 3 else chance.uniform(0, 0.95 * min(spans)))
        if len(spans) < 3:
            assert states == ["sent"], states
            spans.append(time.monotonic() - began)
            continue
        seen["kills"] += states is None
        for _apply_again in range(_APPLIES):
            states = (zygote.apply(street.place, None) or states) if held.exists() and os.listdir(held) else states
        done = carrier.effects()
        last = states[-1] if states else "sent"
        seen[last if last in ("sent", "unknown") else "other"] += 1
        seen["doubled"] += done > 1
        seen["lost"] += not done and last == "sent"
        seen["unknown and done"] += last == "unknown" and done == 1
    return seen


COLUMNS = ("kills", "sent", "unknown", "unknown and done", "other", "doubled", "lost")


def table(count: int, seed: int, told: Callable[[str], object] = lambda _line: None) -> dict[str, Counter[str]]:
    """Kill so many applies of each carrier."""
    zygote, chance, rows = Zygote(), random.Random(seed), {}
    with tempfile.TemporaryDirectory(prefix="kills-") as folder, pytest.MonkeyPatch.context() as patch:
        root = Path(folder)
        (root / "town").mkdir()
        (root / "home").mkdir()
        with Town(root / "town") as town:
            patch.setattr(command_gate, "SHARED", command_gate.SharedGates(lambda _upstream: town.gate))
            street = Street(root, town)
            try:
                for name, kept in street.hold().items():
                    rows[name] = kill(street, zygote, name, kept, count, chance)
                    told(f"| {name} | " + " | ".join(str(rows[name][column]) for column in COLUMNS) + " |")
            finally:
                street.close()
                zygote.close()
    return rows


def main(arguments: list[str]) -> int:
    numbers = [int(word) for word in arguments if word.isdigit()]
    count, seed = (*numbers, *(500, 1)[len(numbers) :])
    lines = [f"| carrier | {' | '.join(COLUMNS)} |", f"| --- |{' ---: |' * len(COLUMNS)}"]
    sys.stdout.write("\n".join(lines) + "\n")

    def told(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        lines.append(line)

    rows = table(-(-count // 8), seed, told)
    if "--write" in arguments:
        head = PAGE.read_text().partition("<!-- table -->\n")[0]
        PAGE.write_text(f"{head}<!-- table -->\n" + "\n".join(lines) + "\n")
    return int(any(row["doubled"] or row["lost"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

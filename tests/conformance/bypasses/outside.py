"""One series of attempts: a host and an internet of its own, the session on it, and the judgement.

    python -m conformance.bypasses.outside MODE [NAME,NAME...]      a line of JSON

An attempt has got through if its mark was said outside, its name was looked up, or a packet went to an address or a
port that only it had, and that nothing allows. A process of its own: namespaces are entered by one without threads.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mudroom.stage.layers.layer import remove_tree

from ..outside import PYTHON, Outcome, answers, attempting, plant  # noqa: TID252 - the package has another name inside
from . import phone
from .attempt import TABLE
from .groups import GROUPS
from .internet import PORTS, Packet, Servers, Sniffer, enter, go_to
from .serving import answer_names, proxy, talk

HERE = Path(__file__).parent
MODES = ("overlay", "copy", "asked", "landlock", "control")
"""How commands are confined; ``asked``: as ``overlay``, and somebody is there who says no to all; ``control``: not at
all, and the proxy lets everything pass."""
CONTAINED = ("nested", "plain")
"""At level 2: with namespaces of their own in a container, or with none but the container's."""
LIMIT = 300
"""Seconds for a series."""
_SETTLE = 3.0
"""Seconds after the last command: longer than what goes on afterwards waits."""
_AFTER_ALL = 4.0


class Series(NamedTuple):
    outcomes: dict[str, Outcome]
    strays: list[str]
    """What went out, and nobody knows whose it was."""
    said: list[dict[str, Any]]
    """By the commands."""
    trouble: str
    """What the session complained about."""


class Driver:
    """The process with the session, where container engines are: outside of this host; its gate enters it."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "drive.py"), "-", str(theirs.fileno())],
            pass_fds=[theirs.fileno()], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        theirs.close()

    def tell(self, host: int) -> None:
        """Which network it is that the gate is to be in."""
        own = [os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)] if os.geteuid() else []
        socket.send_fds(self._ours, [b"n"], [*own, host])

    def drive(self, settings: Path) -> tuple[list[Any], str]:
        said, complained = self._process.communicate(f"{settings}\n", LIMIT)
        return [json.loads(line) for line in said.splitlines()], complained


class World:
    """Made for one series, in this process."""

    def __init__(self, mode: str) -> None:
        assert GROUPS, "the modules of the groups fill the table"
        self.mode = mode
        self.nonce = "by" + secrets.token_hex(4)
        self._driver = Driver() if mode in CONTAINED else None
        host, internet = enter()
        if self._driver is not None:
            self._driver.tell(host)
        self.sniffers = [Sniffer("loopback", "lo")]
        self.home, self.internet = Servers(talk), Servers(talk)
        self.proxy = Servers(proxy)
        if mode == "control":
            self.proxy.listen(3128)
        for port in PORTS:
            if mode != "control" or port != 3128:
                self.home.listen(port)
        self._names = [(self.home, self.home.datagrams(53))]
        go_to(internet)
        self.sniffers.append(Sniffer("internet", "net"))
        for port in PORTS:
            self.internet.listen(port)
        self._names.append((self.internet, self.internet.datagrams(53)))
        go_to(host)
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0{self.nonce}")
        self.abstract.listen()
        self.home.listeners.append(self.abstract)
        for servers in (self.home, self.internet, self.proxy):
            if servers.listeners:
                servers.start()
        for servers, channel in self._names:
            threading.Thread(target=answer_names, args=(servers, channel), daemon=True).start()
        self._over = threading.Event()
        self._sniffing = [threading.Thread(target=self._sniff, args=(one,)) for one in self.sniffers]
        for thread in self._sniffing:
            thread.start()
        self.root = Path(tempfile.mkdtemp(prefix="byp-", dir="/var/tmp"))
        self.log = self.root / "lookups"
        self.log.touch()

    def _sniff(self, sniffer: Sniffer) -> None:
        while not self._over.is_set():
            sniffer.take()
            self._over.wait(0.005)
        sniffer.take()

    def project(self, name: str) -> Path:
        found = self.root / name
        found.mkdir()
        (self.root / "home").mkdir(exist_ok=True)
        plant("bypasses", found)
        world = {
            "nonce": self.nonce, "harness": os.getpid(), "abstract": self.nonce, "ports": {"tcp": 8080, "udp": 53},
        }  # fmt: skip
        (found / "world.json").write_text(json.dumps(world))
        return found

    def drive(self, commands: dict[str, list[list[str]]], rules: list[Any] | None = None) -> tuple[list[Any], str]:
        """Commands in a session of a process of its own, and what it complained about."""
        told = {
            "root": str(self.root), "view": "copy" if self.mode == "copy" else "auto", "log": str(self.log),
            "contained": self.mode == "landlock", "asked": self.mode == "asked",
            "container": self.mode if self.mode in CONTAINED else "",
            "commands": commands, "rules": rules or [],
        }  # fmt: skip
        settings = self.root / "settings.json"
        settings.write_text(json.dumps(told))
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        environment["HOME"] = str(self.root / "home")
        if self._driver is not None:
            return self._driver.drive(settings)
        done = subprocess.run(
            [sys.executable, str(HERE / "drive.py"), str(settings)],
            env=environment, capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def direct(self, project: Path, commands: list[list[str]]) -> list[Any]:
        """The same without a sandbox."""
        said = []
        for argv in commands:
            done = subprocess.run(argv, cwd=project, capture_output=True, text=True, timeout=LIMIT, check=False)
            said.append({"exit": done.returncode, "stdout": done.stdout, "stderr": done.stderr, "notes": []})
        return said

    def series(self, names: list[str]) -> Series:
        project = self.project("project")
        first = attempting("bypasses", names)
        last = [PYTHON, "-I", "-S", "-c", f"import time; time.sleep({_SETTLE})"]
        trouble = ""
        if self.mode == "control":
            said = self.direct(project, [first])
        else:
            said, trouble = self.drive({"project": [["true"], ["true"], first, last]})
        time.sleep(_AFTER_ALL if any(TABLE[name].group == "afterwards" for name in names) else 0.3)
        self.stop()
        told = answers("".join(one["stdout"] for one in said))
        found, strays = self._found()
        outcomes = {}
        for name in names:
            answer = told.get(name, {"evidence": "", "error": "mistaken: no answer"})
            claim = answer["evidence"] if TABLE[name].proof == "claim" else ""
            evidence = "; ".join(dict.fromkeys(one for one in (claim, *found.get(name, ())) if one))
            outcomes[name] = Outcome(name, evidence, answer["error"])
        return Series(outcomes, strays, said, trouble)

    # --- the judgement ---

    def _found(self) -> tuple[dict[str, list[str]], list[str]]:
        names = sorted(TABLE)
        marks = {f"{self.nonce}x{number}x".encode(): name for number, name in enumerate(names, 1)}
        found: dict[str, list[str]] = {}
        strays: list[str] = []

        def note(name: str | None, what: str) -> None:
            if name is None:
                strays.append(what)
            elif what not in found.setdefault(name, []):
                found[name].append(what)

        def marked(data: bytes) -> list[str]:
            at, seen = 0, []
            while (at := data.find(self.nonce.encode() + b"x", at)) >= 0:
                mark = data[at : at + 20].split(b"x")[1]
                if data[max(0, at - 5) : at] != b"inner":
                    seen.append(marks.get(self.nonce.encode() + b"x" + mark + b"x", "?"))
                at += 1
            return seen

        for where, servers in (("the host", self.home), ("the internet", self.internet)):
            for said in servers.heard:
                for name in marked(said):
                    note(name, f"was heard on {where}")
            for line in servers.requests:
                if "inner" + self.nonce in line:
                    number = line.partition("inner" + self.nonce + "x")[2].partition("x")[0]
                    note(names[int(number) - 1], "a request was smuggled")
        for packet in (one for sniffer in self.sniffers for one in sniffer.packets):
            if packet.where in ("127.0.0.1", "::1"):
                continue  # on its way to a proxy on the host's loopback, or back; what servers there heard is known
            seen = marked(packet.data)
            for name in seen:
                note(name, f"a packet: {packet}")
            if not seen and not self._is_allowed(packet):
                slot = _slot(packet)
                note(names[slot - 1] if 0 < slot <= len(names) else None, f"a packet: {packet}")
        for looked in (*self.log.read_text().splitlines(), *self.home.names, *self.internet.names):
            slot = phone.slot_of(looked)
            if not phone.ALLOWED.fullmatch(looked):
                mark = marked(looked.encode())
                owner = mark[0] if mark else names[slot - 1] if 0 < slot <= len(names) else None
                note(owner, f"{looked[-60:]} was looked up")
        return found, sorted(set(strays))

    def _is_allowed(self, packet: Packet) -> bool:
        """Without a mark: what connections that are allowed consist of, and what comes back of them."""
        if packet.at == "loopback":
            local = packet.where.startswith("127.99.") or packet.where == "::ffff:127.0.0.1"
            return not local or (packet.port == 8000 and sorted(TABLE)[_slot(packet) - 1] != "address_of_local")
        place = packet.where.split(".")[:2]
        ports = {"32": (80, 443), "34": (5432,), "35": (3128,), "37": (80, 443)}
        return packet.protocol == 6 and place[0] == "45" and packet.port in ports.get(place[1], ())

    def stop(self) -> None:
        self._over.set()
        for thread in self._sniffing:
            thread.join()

    def close(self) -> None:
        self.stop()
        remove_tree(os.fsencode(self.root))


def _slot(packet: Packet) -> int:
    if packet.where.startswith(("45.3", "127.99.", "10.99.")) and not packet.where.startswith("45.31."):
        high, low = packet.where.split(".")[2:]
        return int(high) << 8 | int(low)
    if packet.where.startswith("2a00:1450::"):
        return int(packet.where.rpartition(":")[2] or "0", 16)
    return 0


def environment() -> dict[str, str]:
    """For a process that runs a module of this package."""
    source = str(HERE.parent.parent.parent / "src")
    return {**os.environ, "PYTHONPATH": os.pathsep.join((source, str(HERE.parent.parent)))}


def series(mode: str, names: list[str] | None = None, environ: Mapping[str, str] | None = None) -> Series:
    """From any process."""
    command = [sys.executable, "-m", "conformance.bypasses.outside", mode, ",".join(names or list(TABLE))]
    known = {**environment(), **(environ or {}), "PYTHONPATH": environment()["PYTHONPATH"]}
    done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=LIMIT * 2, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    outcomes, strays, said, trouble = json.loads(done.stdout.splitlines()[-1])
    return Series({name: Outcome(*one) for name, one in outcomes.items()}, strays, said, trouble)


def main() -> None:
    world = World(sys.argv[1])
    try:
        found = world.series(sys.argv[2].split(","))
    finally:
        world.close()
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)  # servers in threads are not waited for


if __name__ == "__main__":
    main()

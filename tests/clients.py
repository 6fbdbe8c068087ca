"""Servers on the host's loopback as real clients want them, and sessions whose gate finds them under names."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import io
import json
import os
import random
import shutil
import socket
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from mudroom.core.network.flow import Flow, flow_from_json
from mudroom.core.network.host_rules import HostRule
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.net.gate_handle import Gate
from mudroom.session import Session
from mudroom.session.confinement.command_gate import SHARED
from mudroom.session.confinement.host_approver import HostAnswers

HERE = Path(__file__).parent
HELLO = "hello from outside"
BARE = "unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY;"
"""So that a client knows of no proxy."""
PROXIED = "".join(
    f"export {name}={value};"
    for names, value in (
        ("http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY", "http://127.0.0.1:3128"),
        ("no_proxy NO_PROXY", "localhost,127.0.0.1,::1"),
    )
    for name in names.split()
)
"""So that a client uses the gate's proxy. Where every connection reaches the gate, the variables are not set."""


class Site:
    """A directory that is served, with a repository, an index for pip and a registry for npm in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        (directory / "file.txt").write_text(HELLO + "\n")

    def repository(self) -> Path:
        work, bare = self.directory.parent / "work", self.directory / "repo.git"
        work.mkdir()
        (work / "README").write_text(HELLO + "\n")
        script = (
            "git init -q -b main && git add -A && git -c user.name=x -c user.email=x@y commit -qm one && "
            f"git clone -q --bare . {bare} && git -C {bare} update-server-info && touch {bare}/git-daemon-export-ok"
        )
        environment = {**os.environ, "HOME": str(self.directory.parent), "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["sh", "-c", script], cwd=work, env=environment, check=True, capture_output=True)
        return bare

    def wheel(self) -> None:
        place = self.directory / "simple/tiny"
        place.mkdir(parents=True)
        name = "tiny-1.0-py3-none-any.whl"
        files = {
            "tiny.py": f"print({HELLO!r})\n",
            "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
            "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        with zipfile.ZipFile(place / name, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
            archive.writestr("tiny-1.0.dist-info/RECORD", "".join(f"{path},,\n" for path in files))
        (place / "index.html").write_text(f'<a href="{name}">{name}</a>')

    def package(self, host: str, port: int) -> None:
        place = self.directory / "npm"
        place.mkdir()
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            for path, text in (
                ("package/package.json", json.dumps({"name": "tiny", "version": "1.0.0"})),
                ("package/index.js", f"console.log({HELLO!r})\n"),
            ):
                info = tarfile.TarInfo(path)
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
        (place / "tiny.tgz").write_bytes(content.getvalue())
        checksum = "sha512-" + base64.b64encode(hashlib.sha512(content.getvalue()).digest()).decode()
        dist = {"tarball": f"http://{host}:{port}/npm/tiny.tgz", "integrity": checksum}
        version = {"name": "tiny", "version": "1.0.0", "dist": dist}
        document = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        (place / "tiny").write_text(json.dumps(document))

    @contextmanager
    def served(self, address: str = "127.0.0.1") -> Iterator[int]:
        handler = functools.partial(_Quiet, directory=str(self.directory))
        with http.server.ThreadingHTTPServer((address, 0), handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield server.server_address[1]
            finally:
                server.shutdown()
                thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_args: object) -> None:
        pass  # pytest is told nothing of each


@contextmanager
def answering(talk: Callable[[socket.socket], object]) -> Iterator[int]:
    """A server that talks like that with every client."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_answer, args=(server, talk), daemon=True).start()
        yield server.getsockname()[1]


def _answer(server: socket.socket, talk: Callable[[socket.socket], object]) -> None:
    while True:
        try:
            client, _where = server.accept()
        except OSError:
            return
        with client:
            client.settimeout(20)
            try:
                talk(client)
            except OSError:
                continue  # it is gone; what that means the test sees


@contextmanager
def running(argv: Sequence[str], ready: str, **options: Any) -> Iterator[None]:
    """A server of its own, from the moment on when it has said that it is ready."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert process.stdout is not None
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if ready in line:
                break
        else:
            raise AssertionError(f"it did not start: {said}")
        yield
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def free_port() -> int:
    """One that nobody is given by chance until somebody binds it: below those that the kernel gives (ip(7))."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(first // 2, first)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextmanager
def gated(root: Path, ports: Sequence[int], project: Path, **options: Any) -> Iterator[Gated]:
    """Every name below ``example`` is this machine; its ports are these."""
    with ExitStack() as stack:
        assert not SHARED._gates, "a session of another test is still open"
        log, table = root / "lookups", root / "names.json"
        names = ("web.example", "git.example", "db.example", "pkg.example")
        table.write_text(json.dumps({name: [["127.0.0.1"]] for name in names}))
        paths = [str(HERE.parent / "src"), str(HERE / "net")]
        given = f"{str(table)!r}, {str(log)!r}, {{}}"
        SHARED._gates[""] = Gate(f"import sys; sys.path[:0] = {paths!r}; from phonebook import main; main({given})")
        rules = [HostRule("allow", "*.example", tuple(ports), private=True, source="the test")]
        session = Session.open(
            os.fsencode(project),
            state=os.fsencode(root / "state"),
            home=os.fsencode(root / "home"),
            environ={**os.environb, b"LC_ALL": b"C"},
            settings=Settings(network="gate", **options),
            hosts=HostAnswers(lambda: rules),
        )
        stack.enter_context(session)
        yield Gated(session)


class Gated:
    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, script: str) -> Result:
        return self.session.run([b"sh", b"-c", script.encode()], timeout=60)

    def flows(self) -> list[Flow]:
        found = self.session.vault.journal.events_after(0, "flow")
        return [flow_from_json(json.loads(event.data)) for event in found]


def sshd(directory: Path, port: int) -> list[str]:
    """One of its own, for this user, with keys of its own; ``robot`` in the directory is the client's."""
    for name in ("host", "robot"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True)
    (directory / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {directory}/host\nAuthorizedKeysFile {directory}/robot.pub\n"
        "UsePAM no\nStrictModes no\nPidFile none\nPasswordAuthentication no\nPermitRootLogin yes\n"
    )
    program = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin") or "sshd"
    argv = [program, "-D", "-e", "-f", str(directory / "config")]
    if os.geteuid() == 0:  # it wants a directory in /run, which is not there if it is not a service
        inside = f"mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec {' '.join(argv)}"
        argv = ["unshare", "-m", "sh", "-c", inside]
    return argv

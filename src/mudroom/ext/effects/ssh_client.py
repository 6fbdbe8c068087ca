"""The user's own ssh, for git at a host whose pushes are held; and a sandbox's trust in the gate's SSH server.

Rules of this file: the user's configuration, keys and agent are used outside alone. ssh asks nothing and learns no host
key: a host that the user's ``known_hosts`` does not have is refused. Host, user and path come from a sandbox: they have
only characters that neither ssh nor the server's shell reads as more. ssh_config(5), sshd(8) SSH_KNOWN_HOSTS.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from shutil import copyfileobj
from tempfile import TemporaryFile

from mudroom.core.confinement.spec import Bind
from mudroom.core.network.host_rules import USUAL, HostRule, Request, decide
from mudroom.core.system.process import ends_with_parent
from mudroom.core.system.search_path import find_program
from mudroom.core.tree.path import show
from mudroom.ext.effects.message import is_ssh_repository, is_user
from mudroom.ext.effects.wire import MOST_REFS
from mudroom.stage import safe_open
from mudroom.typing import BinaryIO

PATIENCE = 600.0
"""Seconds for a server's hooks."""
_OPTIONS = (
    "BatchMode=yes", "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "ClearAllForwardings=yes", "ControlMaster=no",
    "PermitLocalCommand=no", "ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=4",
)  # fmt: skip
_CONFIG = b"/etc/ssh/ssh_config"
_INSIDE = b"/run/mudroom/ssh"
_MOST_ERROR = 4096


def ssh_line(
    variables: Mapping[bytes, bytes], rules: Sequence[HostRule], place: Request, user: str, service: str
) -> list[str]:
    """Return the command that runs ``git-upload-pack`` or ``git-receive-pack`` at a host. ``place``: with the
    repository as its path. Raise ValueError, also if the rules do not allow it."""
    host, port, _method, path = place
    decision = decide(Request(host, port), rules)
    if decision.action == "deny" or decision.rule is None:
        raise ValueError(decision.reason)
    program = find_program("ssh", variables)
    if program is None:
        raise ValueError("ssh is not installed here: apt install openssh-client")
    if not is_user(user) or not is_ssh_repository(path) or service not in ("upload", "receive"):
        raise ValueError("a request that is not understood")
    options = (word for option in _OPTIONS for word in ("-o", option))
    words = "-T", "-a", "-x", *options, "-p", str(port), "-l", user, "--", host
    return [program, *words, f"git-{service}-pack '{path}'"]


def ssh_words(said: bytes, host: str, port: int, variables: Mapping[bytes, bytes]) -> str:
    """Return one line for the error of an ssh that has failed."""
    place = host if port == 22 else f"-p {port} {host}"
    if b"Host key verification failed" in said:
        if b"HAS CHANGED" in said:
            return f"the host key of {host} is not the one in your known_hosts: somebody may be between"
        return f"the host key of {host} is not in your known_hosts: ssh {place} shows it, and keeps it if you say yes"
    if b"Permission denied" in said:
        if not variables.get(b"SSH_AUTH_SOCK"):
            why = 'no ssh-agent is running, which a key with a passphrase needs: eval "$(ssh-agent)" && ssh-add'
        else:
            why = "ssh-add adds a key with a passphrase to your ssh-agent"
        return f"{host} takes none of your keys: {why}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return show(lines[-1][:300]) if lines else f"ssh to {host} has ended"


class RemoteGit:
    """An ssh whose input and output are a connection of the gate. Owner: the desk."""

    def __init__(self, line: Sequence[str], variables: Mapping[bytes, bytes], channel: int) -> None:
        self._process = subprocess.Popen(
            line, stdin=channel, stdout=channel, stderr=subprocess.PIPE, env=variables, start_new_session=True
        )
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        os.set_blocking(self._stderr.fileno(), False)
        self._said = b""

    def fileno(self) -> int:
        return self._stderr.fileno()

    def ended(self) -> bytes | None:
        """Take the errors that have come. Return None while it runs; at the end all of them, or b"" after a success."""
        data = self._stderr.read(_MOST_ERROR)
        if data is None or data:
            self._said = (self._said + (data or b""))[-_MOST_ERROR:]
            return None
        try:
            failed = self._process.wait(1)
        except subprocess.TimeoutExpired:
            failed = 1
        return (self._said or b"ssh has ended") if failed else b""

    def close(self) -> None:
        self._stderr.close()
        self._process.kill()
        self._process.wait()


def talk(line: Sequence[str], variables: Mapping[bytes, bytes], body: BinaryIO, patience: float) -> tuple[bytes, bytes]:
    """Return the output and errors of an ssh that gets this input; no errors if it has succeeded. It ends with this
    thread, so that it pushes nothing later. Raise OSError."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        copyfileobj(body, given)
        given.seek(0)
        try:
            failed = subprocess.call(
                line, stdin=given, stdout=out, stderr=err, env=variables, timeout=patience, start_new_session=True,
                preexec_fn=ends_with_parent(signal.SIGKILL),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            failed = 1
        out.seek(0)
        err.seek(0)
        return out.read(MOST_REFS), (err.read(_MOST_ERROR) or b"ssh has ended") if failed else b""


# --- inside ---


def trust_ssh(directory: bytes, authority: str, rules: Sequence[HostRule]) -> tuple[Bind, ...]:
    """Return the binds by which OpenSSH in a sandbox knows the gate's SSH server at the hosts that hold pushes on a
    port which is not the web's. ``directory``: of the authority. Raise OSError."""
    places = [(name, port) for rule in rules if rule.hold for port in rule.ports for name in _names(rule.pattern)]
    places = sorted({(name, port) for name, port in places if port not in USUAL})
    if not places or not os.path.isfile(_CONFIG):
        return ()
    from hashlib import sha256

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from cryptography.x509 import load_pem_x509_certificate

    public = load_pem_x509_certificate(authority.encode()).public_key()
    key = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    known = "".join(f"{name if port == 22 else f'[{name}]:{port}'} {key}\n" for name, port in places)
    with open(_CONFIG, "rb") as stream:
        system = stream.read()
    hosts = " ".join(dict.fromkeys(name for name, _port in places))
    own = f"Host {hosts}\n  GlobalKnownHostsFile {os.fsdecode(_INSIDE)}/known_hosts\n  UpdateHostKeys no\nHost *\n"
    files = {b"known_hosts": known.encode(), b"ssh_config": own.encode() + system}
    shown = directory + b"/ssh-" + sha256(b"".join(files.values())).hexdigest()[:16].encode()
    os.makedirs(shown, 0o755, exist_ok=True)
    for name, content in files.items():
        safe_open.replace(shown + b"/" + name, content)
    return Bind(shown, _INSIDE), Bind(shown + b"/ssh_config", os.path.realpath(_CONFIG))


def _names(pattern: str) -> tuple[str, ...]:
    """Return a host pattern as ssh's; none for a network."""
    if pattern.startswith("**."):
        return pattern[3:], pattern[1:]
    return () if "/" in pattern else (pattern,)

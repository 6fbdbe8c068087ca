"""An SSH server with git repositories on loopback, OpenSSH's own, and the user's side of ssh outside the sandbox."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
from pathlib import Path

SSHD = "/usr/sbin/sshd"
USER = getpass.getuser()


class SshHost:
    """Each connection is served by an ``sshd -i`` of its own. ``path`` is the folder with the user's ``ssh``: OpenSSH
    reads the home of the password file, so it is given its configuration."""

    def __init__(self, root: Path, repositories: Path, command: str = "") -> None:
        """``command``: what the key may run alone."""
        self.root, self.path = root, root / "bin"
        self.path.mkdir(parents=True)
        if not os.geteuid():
            Path("/run/sshd").mkdir(exist_ok=True)
        for name in ("host", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / name)], check=True)
        forced = f'command="{command}" ' if command else ""
        (root / "authorized").write_text(forced + (root / "key.pub").read_text())
        (root / "sshd_config").write_text(
            f"HostKey {root}/host\nAuthorizedKeysFile {root}/authorized\nStrictModes no\nUsePAM no\n"
            f"PasswordAuthentication no\nPidFile none\nSetEnv GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null\n"
            f"LogLevel QUIET\nPermitRootLogin prohibit-password\nPermitUserRC no\n"
        )
        self.known = root / "known_hosts"
        self.known.write_text("forge.example " + (root / "host.pub").read_text())
        (root / "config").write_text(
            f"Host forge.example\n  HostName 127.0.0.1\n  HostKeyAlias forge.example\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known}\n  GlobalKnownHostsFile /dev/null\n  IdentityFile {root}/key\n"
            f"  CheckHostIP no\n"
        )
        ssh = self.path / "ssh"
        ssh.write_text(
            f'#!/bin/sh\n[ -r {root}/config ] || exec /usr/bin/ssh "$@"\n'
            f'echo "$*" >> {root}/calls\nexec /usr/bin/ssh -F {root}/config "$@"\n'
        )
        ssh.chmod(0o755)
        self.repositories = repositories

    def calls(self) -> list[str]:
        log = self.root / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def talk(self, client: socket.socket) -> None:
        line = [SSHD, "-i", "-f", str(self.root / "sshd_config")]
        client.settimeout(None)
        subprocess.run(line, stdin=client.fileno(), stdout=client.fileno(), stderr=subprocess.DEVNULL, check=False)

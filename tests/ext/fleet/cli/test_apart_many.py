"""Two hundred errands on two workers that share two pipes with the origin and nothing else: each result equals the same
command's here, no byte of a secret crosses, and nothing listens."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from apart_errands import IN_ARCHIVES, IN_BASE, commands, fill, plant
from recorded_pipe import texts

from box import if_namespaces
from conftest import Place, listing
from mudroom.core.network.host_rules import HostRule
from mudroom.ext.fleet.origin.errand_log import ErrandLog
from mudroom.ext.inspection.credentials import save_credentials
from mudroom.ext.inspection.placeholder import parse_credential
from mudroom.policy import command_answers, host_answers
from mudroom.session import Session
from mudroom.vault.forks.result_digest import result_digest
from test_apart import homes, worker_apart
from test_fleet_verbs import Fleet, fleet

__all__ = ["fleet", "homes"]

SECRETS = (".env", "netrc", ".npmrc", "git", "ssh", "pem", "cloud", "variable", "credential", "answer")
TOOLS = "sh cat grep ln mkdir rm tail true mv cp chmod sed ls env touch test printf kill pwd"


@pytest.mark.deep
@pytest.mark.limit(900)
@if_namespaces
def test_two_hundred_errands_on_workers_apart_are_as_here(
    fleet: Fleet, homes: dict[str, Path], place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {kind: [f"{kind.strip('.')}x{secrets.token_hex(16)}" for _ in range(3)] for kind in SECRETS}
    fill(place.project)
    variables = plant(place.project, place.home, tokens)
    variables |= {b"GATE_%d" % number: value.encode() for number, value in enumerate(tokens["credential"])}
    fleet.environ |= variables
    for variable, value in variables.items():  # commands here start with the same
        monkeypatch.setenv(os.fsdecode(variable), os.fsdecode(value))
    session = place.session()
    _plant_in_mudroom(session, place, tokens)
    pipes = tmp_path / "pipes"
    pipes.mkdir()
    recorder = str(Path(__file__).with_name("recorded_pipe.py"))
    tools = _tools(next(iter(homes.values())).parent)
    for name, home in homes.items():
        words = worker_apart(name, home, path=str(tools))
        added = fleet(
            "fleet", "add", name, "--jobs", "2", "--", sys.executable, recorder, str(pipes), "env", "-i", *words
        )
        assert added[0] == 0, added
    errands = commands(place.project)
    lines = tmp_path / "errands"
    lines.write_text("".join(f"{line}\n" for _kind, line in errands))
    before = listing(place.project)

    with watched_sockets() as seen:
        code, out, err = fleet("fleet", "--json", "run", "--each", str(lines), "--", "sh", "-c", "{}")
    assert code == 1, err
    told = json.loads(out)
    assert listing(place.project) == before
    states = Counter(row["state"] for row in told["errands"])

    differ = _differences(session, errands)
    with_git = fleet("fleet", "run", "-n", "2", "--git", "--", "sh", "-c", "git log --oneline > log{i}")
    assert with_git[0] == 0, with_git
    fleet("exec", "--on", "a", "--agent", "coder", "--", "sh", "-c", "echo hello > agents")
    crossed = _found(pipes, {"public": [IN_BASE, IN_ARCHIVES]} | tokens)
    public = [line for line in crossed if line.startswith("public ")]
    found = [line for line in crossed if line not in public]
    assert set(states) <= {"fetched", "ended", "kept"}
    assert differ == []
    assert len(public) == 2 and ".sent," in public[0] and ".received," in public[1]
    assert found == []
    assert seen.samples > 10 and not seen.listening
    assert {row["worker"] for row in told["errands"]} == set(homes)


def _differences(session: Session, errands: list[tuple[str, str]]) -> list[str]:
    """Run each errand here, and compare its files and its end with the errand's."""
    log = ErrandLog(session.vault.path)
    try:
        rows = {errand.number: (errand, log.attempts("r1")) for errand in log.errands("r1")}
        last = {row.errand: row for row in log.attempts("r1")}
        there = [last[rows[number][0].errand] for number in sorted(rows)]
    finally:
        log.close()
    found = []
    for number, ((kind, line), row) in enumerate(zip(errands, there, strict=True), 1):
        here = session.run([b"sh", b"-c", os.fsencode(line)], fork=f"here{number}")
        vault, outcome = session.vault, row.outcome
        assert outcome is not None
        local = result_digest(vault, vault.fork(f"here{number}"))
        home = (
            result_digest(vault, vault.fork(row.fork))
            if row.fork
            else result_digest(vault, vault.fork(f"here{number}"), ())
        )
        ends = (here.exit_code, here.signal or 0), (outcome.exit_code, outcome.signal)
        if local != home or ends[0] != ends[1] or (row.fork and outcome.fingerprint != home):
            found.append(f"{number}, {kind}: {local} here, {home} home, {outcome.fingerprint} claimed; ends {ends}")
        session.forks.discard(f"here{number}")
    return found


def _plant_in_mudroom(session: Session, place: Place, tokens: dict[str, list[str]]) -> None:
    """Credentials that the gate would put in, and answers about commands and hosts."""
    sources = []
    for number, value in enumerate(tokens["credential"]):
        name = f"GATE_{number}"
        if number:
            sources.append(parse_credential(name, f"api{number}.example.org", "authorization", "env"))
        else:
            file = place.home / "gate-token"
            file.write_text(value)
            file.chmod(0o600)
            sources.append(parse_credential(name, "api.example.org", "authorization", f"file:{file}"))
    save_credentials(session.vault.path, tuple(sources))
    first, second, third = tokens["answer"]
    project, state = os.fsencode(place.project), os.fsencode(place.state)
    command_answers.remember(project, f"deploy --password {first}", state=state)
    command_answers.remember(project, f"curl -u ann:{second} https://example.org", action="deny", state=state)
    host_answers.keep(project, HostRule("allow", f"{third}.example.org"), "", state=state)


def _tools(top: Path) -> Path:
    """Return a directory with the errands' programs, and no container engine."""
    tools = top / "more tools"
    tools.mkdir()
    for name in TOOLS.split():
        (tools / name).symlink_to(f"/usr/bin/{name}")
    (tools / "git").symlink_to("/usr/bin/git")
    return tools


def _found(pipes: Path, tokens: dict[str, list[str]]) -> list[str]:
    """Return where a secret is in the recorded bytes: as it is, in hexadecimal, or in Base64 at any of its three
    offsets."""
    needles: dict[bytes, str] = {}
    for kind, values in tokens.items():
        for number, value in enumerate(values):
            data = value.encode()
            forms = [data, data.hex().encode(), data[::-1]]
            forms += [base64.b64encode(b"x" * skipped + data)[4:-4] for skipped in range(3)]
            needles |= dict.fromkeys(forms, f"{kind} {number}")
    found: dict[str, str] = {}
    for name, text in texts(pipes):
        for needle, secret in needles.items():
            if needle in text:
                found.setdefault(secret, name)
    return sorted(f"{secret}: first in {name}" for secret, name in found.items())


class Sockets:
    """Sockets that listened at any look. The thread that looks writes them."""

    def __init__(self) -> None:
        self.samples = 0
        self.listening: set[str] = set()


@contextmanager
def watched_sockets() -> Iterator[Sockets]:
    """Look again and again at the sockets in the workers' network namespaces, and at those that this process and all
    below it have in its own."""
    seen, is_over = Sockets(), threading.Event()

    def look() -> None:
        while not is_over.wait(0.05):
            _look(seen)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def _look(seen: Sockets) -> None:
    here = os.readlink("/proc/self/ns/net")
    for pid in [os.getpid(), *descendants(os.getpid())]:
        try:
            namespace = os.readlink(f"/proc/{pid}/ns/net")
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            sockets = _listening(pid)
            if namespace == here:
                own = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
                sockets = {inode: name for inode, name in sockets.items() if f"socket:[{inode}]" in own}
            elif b"worker" not in words:
                continue  # a sandbox: its namespace is its own, and no device leads there
            else:
                seen.samples += 1
        except OSError:
            continue
        seen.listening.update(f"{'here' if namespace == here else 'worker'}: {name}" for name in sockets.values())


def _listening(pid: int) -> dict[str, str]:
    """Return the network namespace's sockets that take connections or datagrams, by inode."""
    found = {}
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{protocol}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" or protocol.startswith("udp"):  # TCP_LISTEN, include/net/tcp_states.h
                found[fields[9]] = f"{protocol} {fields[1]}"
    return found


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, pending = [], [pid]
    while pending:
        below = parents.get(pending.pop(), [])
        found += below
        pending += below
    return found

"""A session as on a Mac, from the profile to the apply. ``sandbox-exec`` is a fake that reads the profile, rejects an
unreadable one, and confines nothing: the decisions of a profile are tested in ``test_seatbelt.py``. None of this has
run on a Mac."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from macbox import SPEC, fake_sandbox_exec
from sbpl import parse

from clocks import give_way
from conftest import Place, full_listing
from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.confinement.limit import Limits
from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Settings
from mudroom.errors import CommandNotStarted, MudroomError, Unsupported
from mudroom.ext.macos.client import DarwinClient
from mudroom.ext.macos.platform import PLATFORM as DARWIN
from mudroom.ext.macos.seatbelt import real
from mudroom.sandbox.client.capture import SIGKILL
from mudroom.sandbox.client.invocation import Exit, Invocation
from mudroom.sandbox.client.launcher_client import LaunchedCommand
from mudroom.sandbox.host.process_table import carries, rows
from mudroom.sandbox.platform import LINUX, platform_here, platform_of
from mudroom.session import Session, Stdio
from mudroom.session.confinement.confinement import _permitted
from mudroom.session.confinement.host_approver import HostAnswers

SH = (b"sh", b"-c")


class Mac:
    """A place whose sessions use the platform of a Mac."""

    def __init__(self, place: Place, client: DarwinClient) -> None:
        self.place, self.client = place, client
        place._client = client

    def session(self, settings: Settings | None = None, **options: object) -> Session:
        return self.place.session(settings, platform=DARWIN, **options)


@pytest.fixture
def mac(place: Place, tmp_path: Path) -> Iterator[Mac]:
    client = DarwinClient(tool=fake_sandbox_exec(tmp_path))
    yield Mac(place, client)
    place.close()
    client.close()


def until(condition: Callable[[], object]) -> None:
    """A test has its own limit of time."""
    while not condition():
        give_way()


def test_limits_of_a_mac_are_not_looked_up_by_the_numbers_of_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """7 is the number of open files on Linux, of processes on macOS: the warden does it, by name."""

    def asked(number: int) -> tuple[int, int]:
        raise AssertionError(number)

    monkeypatch.setattr(resource, "getrlimit", asked)
    assert _permitted((7, 64, 64), DARWIN) == (7, 64, 64)


def alive(mark: str) -> list[int]:
    """Return processes of this user whose environment has ``WHO=mark``."""
    return [row[0] for row in rows() if carries(row[0], f"WHO={mark}".encode())]


def test_run_look_apply_undo(mac: Mac) -> None:
    mac.place.write("old", "one\n")
    mac.place.write("gone", "x\n")
    before = full_listing(mac.place.project)
    session = mac.session()
    result = session.run([*SH, b"echo two >> old; rm gone; mkdir d; echo new > d/new; pwd; echo err >&2; exit 3"])
    assert (result.exit_code, result.signal, result.stderr) == (3, None, b"err\n")
    work = os.fsencode(mac.place.state)
    assert result.stdout.startswith(work) and result.stdout.rstrip().endswith(b"/copy/work")
    assert {(one.path, one.verb) for one in result.changeset.changes} == {
        (b"old", "modified"),
        (b"gone", "deleted"),
        (b"d", "added"),
        (b"d/new", "added"),
    }
    assert full_listing(mac.place.project) == before
    session.changes.apply(result.fork)
    assert (mac.place.project / "old").read_text() == "one\ntwo\n" and not (mac.place.project / "gone").exists()
    assert (mac.place.project / "d/new").read_text() == "new\n"
    session.changes.undo()
    assert (mac.place.project / "old").read_text() == "one\n" and (mac.place.project / "gone").exists()


def test_a_second_command_sees_what_the_first_did(mac: Mac) -> None:
    session = mac.session()
    session.run([*SH, b"echo one > a; mkdir d"], fork="f")
    result = session.run([*SH, b"cat a; cd d; echo two > b"], fork="f", cwd=session.project)
    assert result.stdout == b"one\n"
    assert {one.path for one in session.changes.of("f").changes} == {b"a", b"d", b"d/b"}
    nested = session.run([*SH, b"pwd"], fork="f", cwd=session.project + b"/d")
    assert nested.stdout.rstrip().endswith(b"/copy/work/d")


def profile_of(mac: Mac) -> bytes:
    (found,) = mac.place.state.glob("vaults/*/forks/*/profile.sb")
    assert found.stat().st_mode & 0o777 == 0o600
    return found.read_bytes()


def test_the_profile_is_about_what_is_there(mac: Mac) -> None:
    (mac.place.project / ".mudroom").mkdir()
    session = mac.session(Settings(network="gate"))
    result = session.run([*SH, b"pwd; echo $HOME; echo $TMPDIR; echo $http_proxy"])
    work, home, tmp, proxy = result.stdout.splitlines()
    profile = parse(profile_of(mac))
    for place in (work, home, tmp):
        assert profile.allows("file-write-create", path=real(place + b"/x")) and profile.allows(
            "file-read-data", path=real(place)
        )
    project, state = os.fsencode(mac.place.project), os.fsencode(mac.place.state)
    for place in (project, state, os.fsencode(mac.place.home), work.rpartition(b"/copy/")[0]):
        assert not profile.allows("file-write-create", path=real(place + b"/x"))
        assert not profile.allows("file-read-data", path=real(place + b"/x"))
    assert profile.allows("file-read-data", path=real(project + b"/.mudroom/policy.yaml"))
    assert not profile.allows("file-write-create", path=real(work + b"/.mudroom/policy.yaml"))
    port = int(proxy.rpartition(b":")[2])
    assert profile.allows("network-outbound", host="127.0.0.1", port=port, protocol="tcp")
    assert not profile.allows("network-outbound", host="127.0.0.1", port=port + 1, protocol="tcp")
    assert profile.allows("process-exec", path=real(os.path.realpath(sys.executable).encode()))


def test_no_network_means_none(mac: Mac) -> None:
    result = mac.session(Settings(network="none")).run([*SH, b"echo $http_proxy"])
    assert result.stdout == b"\n"
    assert b"localhost" not in profile_of(mac)


class _Origin(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from outside\n")

    def log_message(self, *_words: object) -> None:
        """Log nothing."""


_FETCH = """
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1]).read().decode())
except OSError as error:
    print("refused", getattr(error, "code", error))
"""


def test_the_gate_is_at_a_port_of_loopback(mac: Mac) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    try:
        session = mac.session(hosts=HostAnswers(lambda: [HostRule("allow", "127.0.0.1", (port,), private=True)]))
        script = f"no_proxy= NO_PROXY= exec {sys.executable} -c '{_FETCH}' http://127.0.0.1:"
        assert session.run([*SH, f"{script}{port}/".encode()]).stdout.strip() == b"from outside"
        other = session.run([*SH, f"{script}{port + 1}/".encode()])
        assert other.stdout.startswith(b"refused 403")
        assert [(one.kind, one.target) for one in other.denials] == [("network", f"127.0.0.1:{port + 1}".encode())]
    finally:
        server.shutdown()
        server.server_close()


def test_secrets_are_empty(mac: Mac) -> None:
    mac.place.write(".env", "TOKEN=abc\n")
    session = mac.session()
    result = session.run([*SH, b"cat .env; echo end; rm .env"])
    assert result.stdout == b"end\n"
    session.changes.apply(result.fork)
    assert (mac.place.project / ".env").read_text() == "TOKEN=abc\n"


@pytest.mark.parametrize(("name", "code"), [(b"not-there-at-all", 127), (b"./text", 126), (b"./no/such", 127)])
def test_a_program_that_cannot_be_started(mac: Mac, name: bytes, code: int) -> None:
    mac.place.write("text", "no program\n")
    session = mac.session()
    session.run([b"true"])  # the profile is known from here on
    for _again in range(2):
        with pytest.raises(CommandNotStarted) as caught:
            session.run([name], fork="f")
        assert caught.value.exit_code == code


def test_a_failure_is_the_only_report(mac: Mac, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a host that reads late: one read gets all that was reported."""
    wait = LaunchedCommand.wait

    def late(running: LaunchedCommand) -> Exit:
        while running._connection.is_open():
            give_way()
        return wait(running)

    monkeypatch.setattr(LaunchedCommand, "wait", late)
    with pytest.raises(CommandNotStarted):
        mac.session().run([b"not-there-at-all"], fork="f")


def test_how_it_ends_is_told(mac: Mac) -> None:
    session = mac.session()
    assert session.run([*SH, b"kill -TERM $$"]).signal == signal.SIGTERM
    assert session.run([*SH, b"exit 71"]).exit_code == 71  # the status of sandbox-exec when it fails itself
    busy = session.run([sys.executable.encode(), b"-c", b"sum(range(3_000_000))"])
    assert busy.cpu > 0.01 and busy.max_rss > 5000


@pytest.mark.parametrize(("nested", "said"), [(True, "Operation not permitted"), (False, "No such file")])
def test_no_sandbox_no_command(place: Place, tmp_path: Path, nested: bool, said: str) -> None:
    """Inside of another sandbox, and where there is no sandbox-exec."""
    tool = fake_sandbox_exec(tmp_path, nested=True) if nested else os.fsencode(tmp_path / "nothing")
    client = DarwinClient(tool=tool)
    mac = Mac(place, client)
    with pytest.raises(Unsupported) as caught:
        mac.session().run([*SH, b"echo ran > ran"], fork="f")
    assert said in caught.value.message and "nested" in caught.value.message
    log = tmp_path / "log"
    assert not nested or set(log.read_bytes().split()) == {b"/usr/bin/true"}
    client.close()


def test_a_profile_that_is_refused_is_no_sandbox(mac: Mac, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mudroom.ext.macos.seatbelt.compile_profile", lambda _spec: b"(version 1)(deny default)(oops")
    with pytest.raises(Unsupported, match="a \\) is missing"):
        mac.session().run([*SH, b"echo ran > ran"])


def test_the_tool_is_asked_once_about_a_profile(mac: Mac, tmp_path: Path) -> None:
    session = mac.session(Settings(network="none"))
    for _time in range(3):
        session.run([b"/bin/echo"], fork="f")
    assert (tmp_path / "log").read_bytes().split() == [b"/usr/bin/true", *[b"/bin/echo"] * 3]


LEFT = """
export WHO={mark}
(sleep 1000 &)
nohup sleep 1001 > /dev/null 2>&1 &
{python} -c '
import os
if not os.fork():
    os.setsid()
    if not os.fork():
        os.execvp("sleep", ["sleep", "1002"])
    os._exit(0)
'
echo up
{then}
"""


def left(mark: str, then: str) -> list[bytes]:
    return [*SH, LEFT.format(mark=mark, python=sys.executable, then=then).encode()]


def test_what_a_command_leaves_behind_ends_with_it(mac: Mac, tmp_path: Path) -> None:
    mark = tmp_path.name
    assert mac.session().run(left(mark, "exit 0")).stdout == b"up\n"
    assert alive(mark) == []


def test_a_command_that_takes_too_long_ends_with_all_of_it(mac: Mac, tmp_path: Path) -> None:
    mark = tmp_path.name
    result = mac.session().run(left(mark, "trap '' TERM; while :; do sleep 1; done"), timeout=4)
    assert result.timed_out and result.signal == signal.SIGKILL and result.stdout == b"up\n"
    assert alive(mark) == []


def test_it_is_asked_to_end_first(mac: Mac) -> None:
    script = b"trap 'echo asked; exit 9' TERM; echo up; while :; do sleep 0.1; done"
    result = mac.session().run([*SH, script], timeout=4)
    assert (result.timed_out, result.exit_code, result.stdout) == (True, 124, b"up\nasked\n")


def test_interrupted_from_another_thread(mac: Mac, tmp_path: Path) -> None:
    session, mark = mac.session(), tmp_path.name
    read, write = os.pipe()

    def end() -> None:
        os.read(read, 3)
        session.interrupt(SIGKILL)

    thread = threading.Thread(target=end)
    thread.start()
    result = session.run(left(mark, "sleep 1000"), stdio=Stdio(None, write))
    thread.join()
    assert result.signal == signal.SIGKILL and alive(mark) == []
    os.close(read)
    os.close(write)


def test_when_mudroom_dies_so_does_the_command(mac: Mac, tmp_path: Path) -> None:
    mark = tmp_path.name
    driver = _driver(mac, tmp_path, f"session.run({left(mark, 'sleep 1000')!r}, stdio=Stdio(None, 1))")
    process = subprocess.Popen([sys.executable, str(driver)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(3) == b"up\n" and alive(mark)
    process.kill()
    process.wait()
    process.stdout.close()
    until(lambda: not alive(mark))


def _driver(mac: Mac, tmp_path: Path, what: str) -> Path:
    """A program of its own with a session of this place."""
    place, path = mac.place, tmp_path / "driver.py"
    path.write_text(
        f"""
import os, sys
sys.path[:0] = {sys.path!r}
from mudroom.core.settings import Settings
from mudroom.ext.macos.client import DarwinClient
from mudroom.ext.macos.platform import PLATFORM as DARWIN
from mudroom.session import Session, Stdio
client = DarwinClient(tool={fake_sandbox_exec(tmp_path)!r})
with Session.open(
    {bytes(place.project)!r}, state={bytes(place.state)!r}, home={bytes(place.home)!r}, environ=os.environb,
    platform=DARWIN, client=client,
) as session:
    {what}
client.close()
"""
    )
    return path


def test_output_is_captured_up_to_a_limit(mac: Mac) -> None:
    result = mac.session(Settings(output_limit=1000)).run([*SH, b"head -c 1000000 /dev/zero; echo end >&2"])
    assert (len(result.stdout), result.stderr, result.truncated) == (1000, b"end\n", True)


def test_descriptors_of_the_host_stay_there(mac: Mac, tmp_path: Path) -> None:
    with open(tmp_path / "open", "w") as stream:
        os.set_inheritable(stream.fileno(), True)
        listed = mac.session().run([*SH, b"ls /proc/self/fd"]).stdout.split()
    assert set(listed) <= {b"0", b"1", b"2", b"3"}  # 3: the directory that is listed


def test_file_tools_see_a_running_command(mac: Mac) -> None:
    session = mac.session()
    session.forks.new("f")
    files = session.forks.files("f")
    files.write(b"told", b"by a tool\n")
    seen: list[bytes] = []

    def look(_stream: str, chunk: bytes) -> None:
        if chunk.endswith(b"up\n"):
            seen.append(files.read(b"made"))
            files.write(b"go", b"")

    script = b"cat told; echo made > made; echo up; while [ ! -e go ]; do sleep 0.02; done"
    result = session.run([*SH, script], fork="f", stdio=Stdio(on_output=look))
    assert (result.stdout, seen) == (b"by a tool\nup\n", [b"made\n"])


def test_pause_and_resume(mac: Mac, tmp_path: Path) -> None:
    from mudroom.core.confinement.plan import Plan
    from mudroom.core.confinement.spec import Copy
    from mudroom.ext.macos.seatbelt import compile_seatbelt

    work, private = tmp_path / "work", tmp_path / "f/private"
    for path in (work, private):
        path.mkdir(parents=True)
    plan: Plan = compile_seatbelt(SPEC._replace(view=Copy(bytes(work)), cwd=bytes(work), scratch=bytes(private)))
    script = (
        "for i in 1 2 3; do (while :; do echo x >> grows$i; (setsid sh -c 'echo x >> orphan' &); done) & done; wait"
    )
    environment = {b"PATH": os.environb[b"PATH"]}
    null = os.open(os.devnull, os.O_RDWR)
    running = mac.client.run(plan, Invocation([*SH, script.encode()], environment, (null, null, null)))

    def sizes() -> dict[str, int]:
        return {path.name: path.stat().st_size for path in work.iterdir()}

    until(lambda: len(sizes()) == 4)
    for _round in range(3):
        running.pause()
        before = sizes()
        time.sleep(0.05)  # time in which it would have gone on
        assert sizes() == before
        running.resume()
        until(lambda: sizes() != before)  # noqa: B023 - called at once
    running.signal(SIGKILL)
    assert running.wait().status == signal.SIGKILL
    running.pause()  # harmless
    running.wait_gone()
    os.close(null)


def test_several_at_once(mac: Mac) -> None:
    session = mac.session()
    forks = [session.forks.new(f"f{number}").name for number in range(4)]
    found: dict[str, bytes] = {}

    def run(fork: str) -> None:
        other = mac.session()
        for number in range(3):
            found[fork] = other.run([*SH, b"echo x >> here; cat here"], fork=fork).stdout
            assert len(found[fork].split()) == number + 1

    threads = [threading.Thread(target=run, args=(fork,)) for fork in forks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(forks, b"x\nx\nx\n")


def test_limits_that_need_control_groups(mac: Mac) -> None:
    with pytest.raises(Unsupported, match="memory"):
        mac.session(Settings(limits=Limits(memory=1 << 30))).run([b"true"])
    session = mac.session(Settings(limits=Limits(memory=1 << 30, cpus=1, open_files=64, missing="degrade")))
    result = session.run([*SH, b"ulimit -n; ulimit -c"])
    assert result.stdout.split() == [b"64", b"0"] or result.stdout.split() == [b"64", b"1"]
    assert [note for note in result.notes if "not enforced" in note] == [
        "limit memory, 1 GiB: not enforced (no control groups here)",
        "limit cpus, 1: not enforced (no control groups here)",
    ]


def test_what_needs_a_sandbox_that_stays_is_refused(mac: Mac) -> None:
    with pytest.raises(Unsupported, match="background"):
        mac.session().start([b"sleep", b"10"], fork="f")


def test_level_0(mac: Mac) -> None:
    (mac.place.home / ".claude").mkdir()
    (mac.place.home / ".claude/.credentials.json").write_text("token")
    (mac.place.home / ".ssh").mkdir()
    (mac.place.home / ".netrc").write_text("machine x\n")
    session = mac.session(card=AgentCard("claude-code", 0, Requirements(oauth=True)))
    result = session.run([*SH, b"echo $HOME; echo x > new"], fork="f")
    home = os.fsencode(mac.place.home)
    assert result.level == 0 and result.stdout == home + b"\n"
    profile = parse(profile_of(mac))
    assert profile.allows("file-read-data", path=real(home + b"/notes"))
    assert not profile.allows("file-write-data", path=real(home + b"/notes"))
    assert profile.allows("file-write-data", path=real(home + b"/.claude/.credentials.json"))
    assert not profile.allows("file-write-data", path=real(home + b"/.claude/settings.json"))
    for hidden in (b"/.ssh/id", b"/.netrc", b"/.aws/credentials", b"/Library/Keychains/login.keychain-db"):
        assert not profile.allows("file-read-data", path=real(home + hidden)), hidden
    assert not profile.allows("file-read-data", path=real(os.fsencode(mac.place.state) + b"/vaults/x/journal.db"))
    assert profile.allows("lsopen")  # it logs in by the user's browser


def test_explain_shows_the_profile(mac: Mac) -> None:
    session = mac.session()
    lines = session.explain(session.project)
    assert lines[0] == "namespaces: none" and any("(deny default)" in line for line in lines)
    why = session.why_path(b"/Users/ann/.ssh/id")
    assert (why.verdict, why.refused) == ("by Seatbelt", True)


def test_platforms() -> None:
    assert platform_here("linux") is LINUX
    certificate = (
        "mudroom needs a certificate of this machine; found: {}, and none here (mudroom doctor --certify makes one)"
    )
    systems = {"darwin": "macOS", "win32": "Windows"}
    rows = {name: certificate.format(system) for name, system in systems.items()}  # of what held: tests/ext/certify
    rows["freebsd14"] = (
        "mudroom needs Linux, macOS or Windows; found: freebsd14 (run it in a virtual machine with Linux)"
    )
    for name, told in rows.items():
        with pytest.raises(Unsupported) as raised:
            platform_here(name)
        assert str(raised.value) == told
    assert platform_of("darwin") is DARWIN  # for a caller's request only: never a command's, never by the environment


def test_a_warden_that_is_killed_is_told(mac: Mac, tmp_path: Path) -> None:
    with pytest.raises(MudroomError) as raised:
        mac.session().run(left(tmp_path.name, "kill -9 $PPID; sleep 1000"))
    told = "mudroom's process beside the command was killed (run the command again; nothing was applied)"
    assert str(raised.value) == told
    assert alive(tmp_path.name) == []

"""Limits, for real: on this machine, whatever it has, and (dev/vm) on a stock one with systemd and cgroup v2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import box
from conftest import Place
from mudroom.core.confinement.limit import LimitReached, Limits
from mudroom.core.result import Result, to_json
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.sandbox.limits.cgroup import Leaf, find
from mudroom.sandbox.limits.limiter import Limiter, survey
from mudroom.sandbox.linux.forbidden import in_container

pytestmark = [pytest.mark.both_users, pytest.mark.root]

UNIFIED = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
CONTROLLERS = [f"/sys/fs/cgroup/{name}" for name in ("memory", "pids", "cpu")]


def held() -> bool:
    if os.geteuid():
        return UNIFIED and os.path.exists(f"/run/user/{os.geteuid()}/systemd/private")
    places = ["/sys/fs/cgroup"] if UNIFIED else CONTROLLERS  # read-only, or not there, for root in a container
    return all(os.path.exists(place + "/cgroup.procs") and os.access(place, os.W_OK) for place in places)


HELD = held()
"""Memory, processes and cpus can be limited here."""
if_held = pytest.mark.skipif(not HELD, reason="no control groups that we may write to, nor a user manager of systemd")
if_not_held = pytest.mark.skipif(HELD, reason="this machine can hold limits: see the tests that need that")

PYTHON = "/usr/bin/python3"
MB = 1_000_000
EAT = f"{PYTHON} -c 'x = bytearray(200_000_000)'"
KINDS = ("first", "prepared")
"""A session's first command is cloned by the launcher; later ones by a template, or a spare takes them."""


def groups() -> list[str]:
    """Everything of ours in any control group file system."""
    script = "find /sys/fs/cgroup -type d -path '*mudroom/*' -print 2>/dev/null"
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False).stdout.split()


def run(place: Place, script: str, limits: Limits, kind: str = "first", timeout: float | None = None) -> Result:
    session = place.session(Settings(limits=limits))
    for _number in range(3 if kind == "prepared" else 0):
        assert session.run([b"true"], fork="f").exit_code == 0
    return session.run([b"sh", b"-c", script.encode()], fork="f", timeout=timeout)


# --- what control groups hold -------------------------------------------------------------------------------------


@if_held
@pytest.mark.parametrize("kind", KINDS)
def test_a_memory_bomb_is_killed_and_told(place: Place, kind: str) -> None:
    result = run(place, f"{EAT}; echo $?", Limits(memory=64 * MB), kind)
    assert result.stdout == b"137\n", result.stderr  # the shell goes on
    assert result.reached == (LimitReached("memory", "killed", 64 * MB, amount=1),)
    assert str(result.reached[0]) == "killed: memory, 64 MB"
    assert result.use is not None
    assert result.use.memory_peak is None or 50 * MB < result.use.memory_peak <= 64 * MB


@if_held
def test_a_memory_bomb_of_many_processes_is_one_bomb(place: Place) -> None:
    script = f"""exec {PYTHON} -c '
import os, signal
for _ in range(5):
    if os.fork() == 0:
        x = bytearray(30_000_000)
        signal.pause()
os.wait()
os.killpg(0, signal.SIGKILL)
'"""
    result = run(place, script, Limits(memory=64 * MB))
    assert [one.kind for one in result.reached] == ["memory"]


@if_held
def test_a_command_that_is_the_bomb_itself(place: Place) -> None:
    result = run(place, f"exec {EAT}", Limits(memory=64 * MB))
    assert (result.exit_code, result.signal) == (137, 9)
    assert [str(one) for one in result.reached] == ["killed: memory, 64 MB"]


@if_held
def test_files_in_memory_are_memory(place: Place) -> None:
    result = run(place, "head -c 200000000 /dev/zero > /dev/shm/x", Limits(memory=64 * MB))
    assert "memory" in [one.kind for one in result.reached]


@if_held
@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_bomb_stops(place: Place, kind: str) -> None:
    """So many as were asked for: the command's own, without mudroom's."""
    script = f"""{PYTHON} -c '
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        made += 1
except BlockingIOError:
    print(made, flush=True)
'"""
    result = run(place, "exec " + script, Limits(processes=20), kind)
    assert result.stdout == b"19\n", result.stderr
    assert [(one.kind, one.action, one.limit) for one in result.reached] == [("processes", "refused", 20)]


@if_held
def test_a_real_fork_bomb_ends_with_its_time(place: Place) -> None:
    result = run(place, "f() { f | f & }; f; sleep 60", Limits(processes=50), timeout=1)
    assert result.timed_out or "processes" in [one.kind for one in result.reached]
    assert groups_of(place) == []


def groups_of(place: Place) -> list[str]:
    """Leaves below the vault's groups."""
    vault = next((place.state / "vaults").iterdir()).name.rpartition("-")[2]
    return [name for name in groups() if f"mudroom/{vault}/" in name]


@if_held
def test_cpu_is_held_back_and_told(place: Place) -> None:
    result = run(place, "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done", Limits(cpus=0.02))  # on a busy machine, too
    assert [(one.kind, one.action) for one in result.reached] == [("cpus", "slowed")]
    assert result.reached[0].amount > 0
    assert result.use is not None
    assert result.use.cpu is not None
    assert result.use.cpu < result.duration / 2


@if_held
def test_all_sandboxes_together(place: Place) -> None:
    """The vault's own limit, where a command has none."""
    result = run(place, f"{EAT}; echo $?", Limits(total_memory=64 * MB))
    assert result.stdout == b"137\n"
    assert [str(one) for one in result.reached] == ["killed: memory, 64 MB for all commands of this project"]


@if_held
def test_two_sessions_share_the_ceiling_of_their_vault(place: Place, client: LauncherClient) -> None:
    """One holds 40 MB, so that the other one's 40 MB are too many; with 70 MB each they would both fit."""
    hold = f"{PYTHON} -c 'import time; x = bytearray(40_000_000); print(1, flush=True); time.sleep(30)'"
    environment = {**os.environ, "MUDROOM_STATE": str(place.state), "HOME": str(place.home)}
    place.write(".mudroom/policy.yaml", "limits: {total_memory: 64MB}")
    words = [sys.executable, "-m", "mudroom", "exec", "--fork", "a", "--", "sh", "-c", hold]
    with subprocess.Popen(words, cwd=place.project, env=environment, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"1\n"
        result = run(place, f"{PYTHON} -c 'x = bytearray(40_000_000)'; echo $?", Limits(total_memory=64 * MB))
        other.terminate()
    assert [(one.kind, one.whose) for one in result.reached] == [("memory", "project")] or result.stdout == b"0\n"
    assert result.stdout == b"137\n" or other.returncode != 0


@if_held
@pytest.mark.parametrize("kind", KINDS)
def test_the_hosts_groups_are_not_to_be_seen(place: Place, kind: str) -> None:
    script = "cat /proc/self/cgroup /proc/1/cgroup; ls /sys/fs/cgroup; true"
    limits = Limits(memory=64 * MB, processes=50, cpus=2)
    result = run(place, script, limits, kind)
    joined = ("memory", "pids", "cpu", "cpuacct", "")
    paths = {
        row[2]
        for row in (line.split(":", 2) for line in result.stdout.decode().splitlines())
        if set(row[1].split(",")) & set(joined if UNIFIED else joined[:-1])
    }
    assert paths == {"/"}, result.stdout


@if_held
@pytest.mark.parametrize("kind", KINDS)
def test_every_process_is_in_the_leaf(place: Place, kind: str, tmp_path: Path) -> None:
    """Init too: seen from outside, while the command runs."""
    session = place.session(Settings(limits=Limits(processes=50)))
    for _number in range(3 if kind == "prepared" else 0):
        session.run([b"true"], fork="f")
    seen: list[tuple[str, ...]] = []

    def look() -> None:
        pids = [pid for pid in os.listdir("/proc") if pid.isdecimal() and _is_descendant(int(pid), marker)]
        seen.append(tuple(sorted(Path(f"/proc/{pid}/cgroup").read_text() for pid in pids)))

    marker = f"mark-{os.getpid()}-{kind}"
    read, write = os.pipe()
    try:
        import threading

        def wait() -> None:
            os.read(read, 1)
            look()
            session.interrupt()

        thread = threading.Thread(target=wait)
        thread.start()
        from mudroom.session import Stdio

        script = f": {marker}; sleep 50 & (sleep 50 &) ; echo; wait"
        session.run([b"sh", b"-c", script.encode()], fork="f", stdio=Stdio(stdout=write))
        thread.join()
    finally:
        os.close(read)
        os.close(write)
    (found,) = seen
    assert len(found) == 4, found  # init, the shell, two that sleep
    for membership in found:
        assert "/mudroom/" in membership


def _is_descendant(pid: int, marker: str) -> bool:
    """Return whether the process with ``marker`` among its words, its parent (init) or a child of it has this pid."""

    def words(number: int) -> str:
        try:
            return Path(f"/proc/{number}/cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return ""

    def status(number: int, key: str) -> list[str]:
        try:
            text = Path(f"/proc/{number}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return []
        return next((line.split()[1:] for line in text.splitlines() if line.startswith(key + ":")), [])

    if len(status(pid, "NSpid")) < 2:
        return False
    parent = int((status(pid, "PPid") or ["0"])[0])
    if marker in words(pid) or (parent and marker in words(parent)):
        return True
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    siblings = Path(f"/proc/{parent}/task/{parent}/children").read_text().split() if parent else []
    return any(marker in words(int(child)) for child in (*children, *siblings))


@if_held
def test_nothing_is_left_behind(place: Place) -> None:
    """No groups, no descriptors, no processes, after many commands and the session's end."""
    session = place.session(Settings(limits=Limits(memory=256 * MB, processes=50, cpus=2, total_memory=512 * MB)))
    before: set[str] = set()
    for number in range(30):
        assert session.run([b"sh", b"-c", b"sleep 9 & true"], fork="f").exit_code == 0
        assert groups_of(place) == []
        now = set(os.listdir("/proc/self/fd"))
        if number == 5:
            before = now
        elif number > 5:
            assert len(now) <= len(before)
    session.close()
    assert not [name for name in groups() if name.endswith(session.vault.path.rpartition(b"-")[2].decode())]


@if_held
def test_what_a_crash_left_is_swept(place: Place) -> None:
    """A group of a process that is gone goes at the next start; that of a living one stays."""
    limits = Limits(processes=50)
    gone = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    session = place.session(Settings(limits=limits))
    session.run([b"true"], fork="f")
    assert session.machine.limiter is not None
    held = session.machine.limiter.hold(limits, counts_processes=os.geteuid() != 0)
    assert held.tree is not None
    parent = held.tree.parents["pids"]
    os.mkdir(f"{parent}/{gone}.1")
    os.mkdir(f"{parent}/{os.getpid()}.999999")
    place.session(Settings(limits=limits)).run([b"true"], fork="g")
    left = [name for name in os.listdir(parent) if "." in name and name.partition(".")[0].isdecimal()]
    assert left == [f"{os.getpid()}.999999"]
    os.rmdir(f"{parent}/{left[0]}")


@if_held
def test_killed_at_work_it_leaves_nothing_that_is_not_swept(place: Place) -> None:
    environment = {**os.environ, "MUDROOM_STATE": str(place.state), "HOME": str(place.home)}
    words = [sys.executable, "-m", "mudroom", "exec", "--processes", "50", "--", "sh", "-c", "echo; sleep 60"]
    with subprocess.Popen(words, cwd=place.project, env=environment, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        assert groups_of(place)
        other.kill()
        assert other.stdout.read() == b""  # its last holder is gone
    place.session(Settings(limits=Limits(processes=50))).run([b"true"])
    assert groups_of(place) == []


@if_held
@pytest.mark.parametrize("kind", box.HELD_KINDS)
def test_a_leaf_holds_whatever_the_way_of_confining(tmp_path: Path, client: LauncherClient, kind: str) -> None:
    """By the launcher, by a template, and without namespaces: in the group from the first step on."""
    limits = Limits(processes=40)
    limiter = Limiter(f"test{os.getpid()}", client.prepare_move, os.environb, ())
    held = limiter.hold(limits, counts_processes=True)
    assert held.tree is not None
    here = box.Box(tmp_path, client)
    plan = here.prepared(kind)
    leaf = limiter.leaf()
    assert leaf is not None
    with CapturedOutput(None, None, None, 1 << 20) as output:
        script = "cat /proc/self/cgroup; for i in $(seq 50); do sleep 60 & done; wait"
        running = here.start(script, output, plan, leaf=leaf)
        attend(running, output, None, lambda: None)
        running.wait_gone()
        text, refused = output.streams[0].data.decode(), leaf.reading().processes_refused
    leaf.close()
    limiter.close()
    assert refused > 0
    row = next(line for line in text.splitlines() if ":pids:" in line or (line.startswith("0::") and UNIFIED))
    assert row.endswith(":/") or (kind == "bare" and "/mudroom/" in row)


@if_held
def test_a_leaf_is_removed_with_all_that_runs_in_it(place: Place, client: LauncherClient) -> None:
    """As after an interrupt: remaining processes are killed."""
    limits = Limits(processes=50)
    session = place.session(Settings(limits=limits))
    session.run([b"true"], fork="f")
    assert session.machine.limiter is not None
    leaf = session.machine.limiter.leaf()
    assert leaf is not None
    if os.geteuid() == 0:  # otherwise only clones of the launcher can get there
        with subprocess.Popen(["sleep", "60"]) as left:
            for place_of in leaf._places:
                Path(place_of, "cgroup.procs").write_text(str(left.pid))
            leaf.close()
            assert left.wait() == -9
    leaf.close()
    assert groups_of(place) == []


@pytest.mark.skipif(os.geteuid() != 0 or not HELD, reason="only root may make groups where it is, if anybody")
def test_a_group_that_cannot_have_its_limit_is_not_left(place: Place) -> None:
    limits = Limits(processes=5)
    tree = find("test-broken", limits, frozenset(["pids"]))
    with pytest.raises(OSError, match=r"pids\.max"):
        Leaf(tree, Limits(processes=1 << 70), ())
    parent = tree.parents["pids"]
    assert [name for name in os.listdir(parent) if os.path.isdir(f"{parent}/{name}")] == []
    for one in set(tree.parents.values()):
        os.rmdir(one)


@if_held
def test_time_runs_out_for_all_of_it(place: Place) -> None:
    started = time.monotonic()
    script = "trap '' TERM; (trap '' TERM; sleep 61 & wait) & while :; do sleep 61 & wait; done"
    result = run(place, script, Limits(processes=50), timeout=0.3)
    assert time.monotonic() - started < 60
    assert result.timed_out
    assert LimitReached("time", "killed", 0.3) in result.reached
    assert groups_of(place) == []


@if_held
def test_the_result_as_json(place: Place) -> None:
    found = json.loads(json.dumps(to_json(run(place, f"exec {EAT}", Limits(memory=64 * MB)))))
    assert found["limits"] == [
        {
            "kind": "memory",
            "action": "killed",
            "limit": 64 * MB,
            "whose": "command",
            "amount": 1,
            "text": "killed: memory, 64 MB",
        }
    ]
    assert set(found["use"]) == {"memory_peak", "processes_peak", "cpu_ms", "throttled_ms", "io_read", "io_written"}


# --- what rlimits hold, everywhere --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_can_only_get_so_big(place: Place, kind: str) -> None:
    result = run(place, "exec head -c 20000 /dev/zero > big", Limits(file_size=10_000), kind)
    assert result.signal == 25
    assert [str(one) for one in result.reached] == ["killed: file size, 10 kB"]
    assert [change.staged.size for change in result.changeset.changes if change.staged] == [10_000]


def test_only_so_many_files_can_be_open(place: Place) -> None:
    script = f"ulimit -Hn; {PYTHON} -c 'f = [open(\"/dev/null\") for n in range(50)]' 2>&1 | tail -1"
    result = run(place, script, Limits(open_files=32))
    assert result.stdout.startswith(b"32\nOSError: [Errno 24]"), result.stdout


def test_a_limit_above_our_own_is_no_failure(place: Place) -> None:
    """A limit of mudroom itself cannot be raised, and is the tighter limit."""
    result = run(place, "ulimit -Hn", Limits(open_files=(1 << 31) - 1))
    assert 0 < int(result.stdout) < 1 << 31


def test_nothing_is_dumped(place: Place) -> None:
    """Neither into a file nor through a pipe to the host's crash handler: see ``core.limit.rlimits``."""
    result = run(place, f"{PYTHON} -c 'import resource as r; print(*r.getrlimit(r.RLIMIT_CORE))'", Limits())
    assert result.stdout in (b"1 1\n", b"0 0\n")


def test_output_that_was_cut_is_told(place: Place) -> None:
    session = place.session(Settings(output_limit=10))
    result = session.run([b"echo", b"more than ten bytes"])
    assert [str(one) for one in result.reached] == ["cut: output, 10 bytes"]
    assert result.truncated


def test_without_limits_there_is_no_group(place: Place) -> None:
    result = run(place, "true", Limits())
    assert result.use is None
    assert result.reached == ()


# --- where there are no groups ------------------------------------------------------------------------------------


@if_not_held
@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (Limits(memory=64 * MB), "a limit of memory"),
        (Limits(processes=10), "a limit of processes"),
        (Limits(cpus=1.0), "a limit of cpus"),
        (Limits(total_memory=64 * MB), "a limit of memory"),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_the_fix(place: Place, limits: Limits, what: str) -> None:
    session = place.session(Settings(limits=limits))
    with pytest.raises(Unsupported, match=what) as caught:
        session.run([b"touch", b"x"])
    assert caught.value.found
    assert ("docker run --memory" if in_container() else "systemd") in caught.value.hint
    assert "limits: {missing: degrade}" in caught.value.hint
    assert session.vault.forks() == []


@if_not_held
def test_memory_of_each_process_where_the_policy_permits_it(place: Place) -> None:
    limits = Limits(memory=64 * MB, missing="degrade")
    result = run(place, f"{EAT} 2>&1 | tail -1", limits)
    assert result.stdout.startswith(b"MemoryError"), result.stdout
    assert any("memory, 64 MB: held for each process" in note for note in result.notes)


@if_not_held
@box.if_namespaces
@pytest.mark.skipif(os.geteuid() == 0, reason="RLIMIT_NPROC does not count root's processes: setrlimit(2)")
def test_processes_of_the_session_where_the_policy_permits_it(place: Place) -> None:
    limits = Limits(processes=20, missing="degrade")
    result = run(place, "for i in $(seq 25); do sleep 5 & done", limits)  # fmt: skip
    assert b"fork" in result.stderr
    assert any("processes, 20: counted for all commands" in note for note in result.notes)


@if_not_held
def test_what_nothing_stands_in_for_is_told(place: Place) -> None:
    limits = Limits(cpus=1.5, io=MB, total_cpus=2, missing="degrade")
    result = run(place, "true", limits)
    assert result.exit_code == 0
    told = "\n".join(result.notes)
    assert "cpus, 1.5: not enforced" in told
    assert "io, 1 MB/s: not enforced" in told
    assert "all commands together: cpus, 2: not enforced" in told


@pytest.mark.skipif(UNIFIED, reason="for cgroup v1; in a stock machine it depends on what systemd delegates")
def test_io_is_refused_where_buffered_writes_would_pass(place: Place) -> None:
    session = place.session(Settings(limits=Limits(io=MB)))
    with pytest.raises(Unsupported, match="a limit of io"):
        session.run([b"true"])
    assert [name for name in groups() if name.endswith(session.vault.path.rpartition(b"-")[2].decode())] == []


@pytest.mark.skipif(not UNIFIED or os.geteuid() != 0, reason="only root has the controller io, and only of version 2")
def test_io_is_held(place: Place) -> None:
    """Three seconds' worth, less the burst that the kernel grants."""
    started = time.monotonic()
    script = "dd if=/dev/zero of=big bs=1M count=12 oflag=direct"
    result = run(place, script, Limits(io=4 * MB, memory=256 * MB))
    assert result.exit_code == 0
    assert time.monotonic() - started > 1.5
    assert result.use is not None
    assert result.use.io_written is not None
    assert result.use.io_written >= 12 << 20


@pytest.mark.skipif(not UNIFIED or not HELD or os.geteuid() == 0, reason="what systemd does not delegate by itself")
def test_what_is_not_delegated_is_refused_and_the_rest_held(place: Place) -> None:
    limits = Limits(memory=64 * MB, io=MB)
    session = place.session(Settings(limits=limits))
    with pytest.raises(Unsupported, match="not given the controller io") as caught:
        session.run([b"true"])
    assert "Delegate=cpu cpuset io memory pids" in caught.value.hint
    result = run(place, f"{EAT}; true", limits._replace(missing="degrade"))
    assert [str(one) for one in result.reached] == ["killed: memory, 64 MB"]
    assert any("io, 1 MB/s: not enforced" in note for note in result.notes)


def test_what_a_doctor_would_say(client: LauncherClient, tmp_path: Path) -> None:
    found = {
        one.limit: one for one in survey(client.prepare_move, os.environb, os.fsencode(tmp_path), counts_processes=True)
    }
    assert set(found) == {"memory", "processes", "cpus", "io", "open files", "file size"}
    for name in ("memory", "processes", "cpus"):
        assert (found[name].state == "strict") == HELD, found[name]
    for one in found.values():
        assert one.state in ("strict", "degraded", "missing")
        assert bool(one.fix) == (one.state != "strict")
        assert one.found
    assert not [
        name for name in groups() if "doctor" in name and "launcher" not in name and "doctor" in Path(name).name
    ]


def test_a_limiter_that_was_never_asked_closes(client: LauncherClient) -> None:
    limiter = Limiter("none", client.prepare_move, {}, ())
    assert limiter.leaf() is None
    limiter.close()

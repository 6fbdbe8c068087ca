"""``mudroom worker --stdio``, with an origin by hand."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
from scripted_origin import ScriptedOrigin, errand, message_of, row_of
from worker_fixtures import origin, process, project, start, started, worker_home

from clocks import give_way
from mudroom import __version__
from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.command.policy import ClassRule, CommandPolicy
from mudroom.core.network.flow import FlowAnswer, FlowQuestion
from mudroom.core.settings import Settings
from mudroom.ext.fleet.base.pack import packs
from mudroom.ext.fleet.wire import message
from mudroom.ext.fleet.wire.frame import Frame, encode
from mudroom.ext.fleet.worker import held_results
from mudroom.ext.fleet.worker import link as link_module

__all__ = ["origin", "process", "project", "start", "started", "worker_home"]  # fixtures

Worker = Callable[..., ScriptedOrigin]
ASKS = Settings(commands=CommandPolicy(by_class=(ClassRule("destructive", "require_approval"),)))


def members(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as tar:
        return [name.rpartition("tree/")[2] for name in tar.getnames() if "tree/" in name]


# --- an errand ---


def test_an_errand_from_hello_to_kept(start: Worker, project: Path) -> None:
    worker = start()
    hello = worker.hello()
    assert hello.protocol == message.PROTOCOL and 1 in hello.levels and hello.held == ()
    base = worker.send_base(project)
    script = "pwd; cat .env; cat src/b.txt; echo new > new; echo $MUDROOM_ATTEMPT $MARK >&2; exit 3"
    stream = worker.sh(base, script, variables=((b"MARK", b"m"),), number=7)
    outcome = worker.outcome(stream)
    assert worker.printed(stream) == f"{project}\ntwo\n".encode()
    assert worker.printed(stream, 2) == b"7 m\n"
    assert (outcome.state, outcome.exit_code, outcome.signal, outcome.added) == ("ended", 3, 0, 1)
    archive = worker.fetch(outcome)
    assert len(archive) == outcome.archive and hashlib.blake2b(archive, digest_size=32).digest() == outcome.digest
    assert members(archive) == ["new"] and b"TOKEN" not in gzip.decompress(archive)
    assert worker.fetch(outcome, 100) == archive[100:]
    assert "run" in [row_of(frame)["kind"] for frame in worker.received if frame.kind == message.EVENT]
    worker.send(message.KEPT, message.Kept(outcome.errand, outcome.attempt))
    worker.send(message.BYE, message.Bye("done"))
    assert worker.wait() == 0 and worker.errors() == ""
    again = start()
    assert again.hello().held == ()
    assert "accepted before" in again.failure(again.offer(base, "true")).reason  # kept, and still never run twice


def test_no_change_has_no_archive_and_a_judge_leaves_nothing(start: Worker, project: Path) -> None:
    worker = start()
    worker.hello()
    base = worker.send_base(project)
    plain = worker.outcome(worker.start(base, "true"))
    assert (plain.archive, plain.digest, plain.judged) == (0, b"", -1)
    stream = worker.sh(base, "echo x > x", name="errand-0002", judge=(b"sh", b"-c", b"cat x; touch dropping; exit 5"))
    judged = worker.outcome(stream)
    assert (judged.judged, judged.report, judged.exit_code) == (5, b"x\n", 0)
    assert members(worker.fetch(judged)) == ["x"]


def test_a_command_has_the_origin_s_umask(process: Worker, project: Path) -> None:
    worker = process()  # the process has its own
    worker.hello()
    stream = worker.sh(worker.send_base(project), "umask; touch x; stat -c %a x src")
    worker.outcome(stream)
    assert worker.printed(stream) == b"0022\n644\n755\n"


def test_pings_are_answered_with_free_disk(start: Worker) -> None:
    worker = start()
    worker.hello()
    worker.send(message.PING, message.Ping(41))
    pong = worker.expect(message.PONG)
    assert pong.number == 41 and pong.running == 0 and pong.free_disk > 0


def test_an_errand_may_be_cancelled_while_it_runs_and_while_it_waits(start: Worker, project: Path) -> None:
    worker = start(jobs=1)
    worker.hello()
    base = worker.send_base(project)
    running = worker.sh(base, "echo x > x; echo up; exec sleep 1000")
    worker.expect(message.OUT, running)
    waiting = worker.start(base, "touch", "never", name="errand-0002")
    worker.send(message.CANCEL, message.CancelErrand("errand-0002", 1, 15), waiting)
    second = worker.outcome(waiting)
    assert (second.state, second.archive) == ("cancelled", 0) and "not been started" in second.reason
    worker.send(message.CANCEL, message.CancelErrand("errand-0001", 1, 15), running)
    first = worker.outcome(running)
    assert (first.state, first.signal, first.added) == ("cancelled", 15, 1)


def test_a_slow_origin_holds_up_no_command_and_takes_no_memory(process: Worker, project: Path) -> None:
    worker = process("--jobs", "2")
    worker.hello()
    base = worker.send_base(project)
    loud = worker.sh(base, "echo up; head -c 30000000 /dev/zero", settings=Settings(output_limit=12_000_000))
    quiet = worker.start(base, "echo", "hush", name="errand-0002")
    folders = worker.home / ".local/state/mudroom/worker" / worker.origin
    while len(list(folders.glob("*/errands/errand-*/outcome"))) < 2:  # both end, and nobody reads
        assert Path(f"/proc/{worker.pid}").exists()
        give_way()
    peak = Path(f"/proc/{worker.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
    assert int(peak) < 160_000
    worker.outcome(quiet)
    assert worker.printed(quiet) == b"hush\n"
    worker.outcome(loud)
    assert worker.printed(loud) == b"up\n" + bytes(12_000_000 - 3)


# --- questions ---


@pytest.mark.parametrize("allow", [True, False])
def test_a_question_about_a_command_is_answered_by_the_origin(start: Worker, project: Path, allow: bool) -> None:
    worker = start()
    worker.hello()
    stream = worker.start(worker.send_base(project), "rm", "a.txt", agent="coder", settings=ASKS)
    ask = worker.expect(message.ASK, stream)
    question = msgspec.msgpack.decode(ask.question, type=CommandQuestion)
    assert ask.kind == "command" and question.command == (b"rm", b"a.txt") and question.agent == "coder"
    answer = msgspec.msgpack.encode(CommandAnswer(allow, keep=True, by="test"))
    worker.send(message.ANSWER, message.Answer(ask.number, answer), stream)
    worker.send(message.ANSWER, message.Answer(ask.number, answer), stream)  # late
    outcome = worker.outcome(stream)
    assert (outcome.state, outcome.deleted) == (("ended", 1) if allow else ("refused", 0))


@pytest.mark.parametrize("answer", [None, b"", b"\xc1junk", msgspec.msgpack.encode([1])])
def test_no_answer_is_a_denial(start: Worker, project: Path, answer: bytes | None) -> None:
    worker = start()
    worker.hello()
    settings = ASKS._replace(approval_timeout=0.2 if answer is None else 60.0)
    stream = worker.start(worker.send_base(project), "rm", "a.txt", agent="coder", settings=settings)
    ask = worker.expect(message.ASK, stream)
    if answer is not None:
        worker.send(message.ANSWER, message.Answer(ask.number, answer), stream)
    assert worker.outcome(stream).state == "refused"


REACH = "import urllib.request as r; r.build_opener(r.ProxyHandler()).open('http://nowhere.example/').read()"


def test_a_question_about_a_host_is_answered_by_the_origin(start: Worker, project: Path) -> None:
    worker = start()
    worker.hello()
    stream = worker.start(worker.send_base(project), "/usr/bin/python3", "-c", REACH)
    ask = worker.expect(message.ASK, stream)
    question = msgspec.msgpack.decode(ask.question, type=FlowQuestion)
    assert (ask.kind, question.host, question.port) == ("host", "nowhere.example", 80)
    worker.send(message.ANSWER, message.Answer(ask.number, msgspec.msgpack.encode(FlowAnswer(False))), stream)
    outcome = worker.outcome(stream)
    assert outcome.exit_code == 1 and b"403" in worker.printed(stream, 2)


# --- bad input ---


def test_another_protocol_is_refused_by_name_with_both_versions(process: Worker) -> None:
    worker = process()
    worker.send(message.HELLO, [9, "9.9.9", {"strange": True}, 1, 2, 3, 4])
    version = msgspec.msgpack.decode(worker.next().body)
    assert version[:2] == [message.PROTOCOL, __version__]
    assert len(version) == 10 and msgspec.convert(version, message.WorkerHello)  # what older origins can read
    bye = message_of(worker.next())
    assert "protocol 9 of mudroom 9.9.9" in bye.reason
    assert f"protocol {message.PROTOCOL} of mudroom {__version__}" in bye.reason
    assert worker.wait() == 125
    assert worker.errors().startswith("mudroom: the other end of the link speaks protocol 9 of mudroom 9.9.9")


BAD_STARTS = {
    "a length of 2^32 - 1": b"\xff\xff\xff\xff\x01\0\0\0\0",
    "a kind that there is not": encode(Frame(99, 0, b"")),
    "no hello": encode(Frame(message.PING, 0, b"\x91\x01")),
    "a hello that is no array": encode(Frame(message.HELLO, 0, b"\x01")),
    "half a hello": encode(Frame(message.HELLO, 0, b"\x95\x01")),
    "a hello of pickle": encode(Frame(message.HELLO, 0, b"\x80\x04\x95\x1a\0\0\0")),
    "nesting": encode(Frame(message.HELLO, 0, b"\x91" * 60_000)),
    "nothing": b"",
}


def test_a_bad_start_ends_the_link_with_one_line(start: Worker) -> None:
    for name, data in BAD_STARTS.items():
        worker = start()
        worker.raw(data)
        worker.close_input()
        assert worker.wait() == 125, name
        errors = worker.errors()
        assert errors.startswith("mudroom: the other end of the link") and "Traceback" not in errors, name


BAD_FRAMES = {
    "a length of 2^32 - 1": b"\xff\xff\xff\xff\x15\0\0\0\0",
    "a kind that there is not": encode(Frame(99, 3, b"x")),
    "a frame of the worker's own kind": encode(Frame(message.OUTCOME, 3, b"\x90")),
    "a second hello": encode(Frame(message.HELLO, 0, b"\x91\x01")),
    "an errand that is none": encode(Frame(message.ERRAND, 3, b"\x93\x01\x02\x03")),
    "objects that were not asked for": encode(Frame(message.OBJECTS, 0, b"\x00\0\0\0\x01\x90")),
    "a body beyond its kind's bound": encode(Frame(message.PING, 0, bytes(65))),
}


def test_a_bad_frame_ends_the_link_by_name(start: Worker) -> None:
    for name, data in BAD_FRAMES.items():
        worker = start()
        worker.hello()
        worker.raw(data)
        bye = worker.expect(message.BYE)
        assert bye.reason.startswith("the other end of the link"), name
        assert worker.wait() == 0 and worker.errors() == "", name


BAD_ERRANDS: dict[str, tuple[dict[str, object], str]] = {
    "a name with a slash": ({"name": "../../etc"}, "name of an errand"),
    "attempt 0": ({"attempt": 0}, "attempt"),
    "a directory outside": ({"cwd": b"../x"}, "directory"),
    "an absolute directory": ({"cwd": b"/etc"}, "directory"),
    "a NUL": ({"judge": (b"a\0b",)}, "NUL"),
    "a variable with =": ({"variables": ((b"A=B", b"c"),)}, "variable"),
    "an endless timeout": ({"timeout": float("inf")}, "seconds"),
    "a timeout that is no number": ({"timeout": float("nan")}, "seconds"),
    "level 7": ({"level": 7}, "level"),
    "a level that this worker lacks": ({"level": 0}, "level 0 on this worker"),
    "a level that its settings ask for": ({"settings": Settings(level=0)}, "level 0 on this worker"),
}


def test_an_errand_out_of_bounds_fails_before_it_is_accepted(start: Worker, project: Path) -> None:
    worker = start()
    worker.hello()
    base = worker.send_base(project)
    for name, (fields, reason) in BAD_ERRANDS.items():
        failed = worker.failure(worker.offer(base, "true", **fields))  # type: ignore[arg-type]
        assert reason in failed.reason, name
    assert "no command" in worker.failure(worker.offer(base)).reason
    missing = worker.failure(worker.offer(bytes(32), "true"))
    assert missing[:2] == ("there is no base 000000000000 here", "offer it first")
    assert worker.outcome(worker.start(base, "true")).state == "ended"


def test_objects_with_another_digest_end_the_link(start: Worker, project: Path) -> None:
    from scripted_origin import scanned_project

    worker = start()
    worker.hello()
    scanned = scanned_project(project, Settings(), worker.home)
    worker.send(message.OFFER, message.OfferedBase(scanned.base))
    want = worker.expect(message.WANT)

    class Liar:
        def size(self, _digest: bytes) -> int:
            return 3

        def is_node(self, _digest: bytes) -> bool:
            return True

        def read(self, _digest: bytes, _offset: int, _length: int) -> bytes:
            return b"\x90no"

    for pack in packs(want.nodes, Liar()):
        worker.send(message.OBJECTS, pack)
    assert "objects" in worker.expect(message.BYE).reason
    assert worker.wait() == 0


def test_a_program_that_there_is_not(start: Worker, project: Path) -> None:
    worker = start()
    worker.hello()
    outcome = worker.outcome(worker.start(worker.send_base(project), "no-such-program"))
    assert (outcome.state, outcome.exit_code) == ("failed", 127) and "no-such-program" in outcome.reason


def test_an_errand_whose_launcher_is_killed_is_lost_and_may_be_tried_again(process: Worker, project: Path) -> None:
    """By the kernel, where memory is short: that is not the command's failure."""
    worker = process()
    worker.hello()
    base = worker.send_base(project)
    stream = worker.sh(base, "echo up; exec sleep 1000")
    while not worker.printed(stream):
        worker.next()
    (launcher,) = [
        int(child)
        for task in Path(f"/proc/{worker.pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    os.kill(launcher, signal.SIGKILL)
    outcome = worker.outcome(stream)
    assert (outcome.state, outcome.reason) == ("lost", "the sandbox launcher died")
    assert worker.outcome(worker.sh(base, "exit 3", attempt=2)).exit_code == 3, "the next errand has a launcher"


def test_an_errand_that_was_accepted_is_not_accepted_again(start: Worker, project: Path) -> None:
    worker = start()
    worker.hello()
    base = worker.send_base(project)
    stream = worker.sh(base, "echo up; read x")
    worker.outcome(stream)
    assert "accepted before" in worker.failure(worker.offer(base, "echo", "other")).reason
    second = worker.start(base, "true", attempt=2)
    assert worker.outcome(second).attempt == 2


def test_late_frames_are_ignored_or_fail(start: Worker, project: Path) -> None:
    worker = start()
    worker.hello()
    worker.send(message.ANSWER, message.Answer(99, b""), 7)
    worker.send(message.DIALLED, message.Dialled(5, ""), 7)
    worker.send(message.DATA, b"xx", 5)
    worker.send(message.SHUT, b"", 5)
    worker.send(message.KEPT, message.Kept("errand-0001", 1), 7)
    worker.send(message.CANCEL, message.CancelErrand("errand-0001", 1, 15), 8)
    assert worker.failure(8).reason == "this worker has no attempt 1 of the errand errand-0001"
    worker.send(message.FETCH, message.Fetch("errand-0001", 1, 0), 9)
    assert "no attempt 1" in worker.failure(9).reason
    worker.send(message.FETCH, message.Fetch("../x", 1, 0), 10)
    assert "name of an errand" in worker.failure(10).reason
    assert worker.outcome(worker.start(worker.send_base(project), "true")).state == "ended"


def test_questions_about_an_errand_at_the_wrong_time(
    start: Worker, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an origin with another version, or a hostile one; the limits are small here."""
    worker = start()
    worker.hello()
    base = worker.send_base(project)
    changed = worker.outcome(worker.sh(base, "echo x > x", name="errand-0001"))
    assert worker.outcome(worker.start(base, "true", name="errand-0002")).state == "ended"
    running = worker.sh(base, "echo up; exec sleep 1000", name="errand-0003")

    def refused(by: ScriptedOrigin, kind: int, body: object) -> tuple[str, str]:
        stream = 1_000 + by.new_stream()
        by.send(kind, body, stream)
        failed = by.failure(stream)
        return failed.reason, failed.hint

    other = start()
    other.hello()
    fetch = partial(message.Fetch, attempt=1, offset=0)
    again = message.Fetch("errand-0003", 1, -1)
    assert refused(worker, message.FETCH, fetch("errand-0002")) == (
        "the errand has no archive",
        "it has changed nothing",
    )
    told = ("the errand runs on this link", "its outcome comes on the stream of its ERRAND")
    assert refused(worker, message.FETCH, again) == told
    for link in (worker, other):
        assert refused(link, message.KEPT, message.Kept("errand-0003", 1)) == ("the errand has not ended", "")
    with monkeypatch.context() as patch:
        patch.setattr(held_results, "MOST_FETCHES", 0)
        patch.setattr(held_results, "MOST_WAITERS", 0)
        patch.setattr(link_module, "MOST_OPEN", 1)
        assert refused(other, message.FETCH, fetch("errand-0001")) == ("0 archives are being sent", "fetch it later")
        assert refused(other, message.FETCH, again) == ("0 errands are waited for", "ask later")
        full = worker.failure(worker.offer(base, "true", name="errand-0004"))
        assert full[:2] == ("1 errands run or wait on this worker", "send it later")
    assert other.fetch(changed).startswith(b"\x1f\x8b"), "what was refused is there later: a file of gzip"
    worker.send(message.CANCEL, message.CancelErrand("errand-0003", 1, 9), running)
    assert worker.outcome(running).state == "cancelled"


def test_an_origin_is_told_nothing_of_another(start: Worker, project: Path) -> None:
    first, second = start(), start(name="f" * 32)
    first.hello()
    first.outcome(first.sh(first.send_base(project), "echo x > x"))
    assert second.hello().held == ()
    second.send(message.FETCH, message.Fetch("errand-0001", 1, 0), 5)
    assert "no attempt 1" in second.failure(5).reason
    # No oracle of who has a file.
    assert "no base" in second.failure(second.offer(first.send_base(project), "true")).reason


def test_the_state_is_this_user_s_alone_and_names_are_checked(process: Worker) -> None:
    worker = process()
    worker.hello()
    top = worker.home / ".local/state/mudroom/worker"
    assert {oct(path.stat().st_mode & 0o777) for path in (top, *top.iterdir()) if path.is_dir()} == {"0o700"}
    stranger = process(name="../../../etc/passwd")
    stranger.send(message.HELLO, message.OriginHello(message.PROTOCOL, "test", stranger.origin, "one", 60.0))
    assert "has a name" in stranger.expect(message.BYE).reason
    assert stranger.wait() == 125


def test_prints_do_not_reach_the_link() -> None:
    program = (
        "from mudroom.cli.terminal.protocol_streams import take_streams; import os; read, write = take_streams();"
        "print('a print', flush=True); os.system('echo a child'); os.write(write, b'frames'); assert not os.read(0, 1)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=b"from the origin", capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"frames", b"a print\na child\n")


def test_a_verb_at_the_wrong_place_says_what_to_do(start: Worker) -> None:
    done = subprocess.run([sys.executable, "-m", "mudroom", "worker"], capture_output=True, text=True, check=False)
    assert done.returncode == 125 and "mudroom fleet add" in done.stderr and done.stderr.count("\n") <= 2


def test_an_errand_is_data() -> None:
    shape = errand(bytes(32), "true")
    assert message.message_of(message.frame_of(message.ERRAND, shape), message.Errand) == shape


# --- memory and GPUs ---


def test_a_worker_says_what_it_has_and_what_is_free(process: Worker) -> None:
    worker = process("--memory", "64MiB", "--gpus", "2")
    hello = worker.hello()
    assert (hello.memory, hello.gpus) == (64 << 20, 2) and 0 < hello.free_memory <= 64 << 20
    worker.send(message.PING, message.Ping(1))
    assert 0 < worker.expect(message.PONG).free_memory <= 64 << 20


WAITING = "echo $CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES; exec sleep 600"


def test_no_two_errands_have_the_same_gpu_whoever_sent_them(process: Worker, project: Path) -> None:
    one, other = process("--gpus", "2"), process("--gpus", "2", name="f" * 32)
    numbers = set()
    streams = []
    for worker in (one, other):
        worker.hello()
        base = worker.send_base(project)
        streams.append(worker.sh(base, WAITING, gpus=1))
        while not worker.printed(streams[-1]):
            frame = worker.next()
            assert frame.kind != message.OUTCOME, message_of(frame).reason
        numbers.add(worker.printed(streams[-1]))
        assert "GPU" not in " ".join(worker.outcome(worker.sh(base, "true", name="errand-0002")).notes)
    assert numbers == {b"0 0\n", b"1 1\n"}
    third = one.outcome(one.sh(one.send_base(project), "true", name="errand-0003", gpus=1))
    assert (third.state, third.reason) == (
        "failed",
        "1 of its 2 GPUs are needed, 0 are free (another origin uses them; run it again later)",
    )
    for worker, stream in zip((one, other), streams, strict=True):
        worker.send(message.CANCEL, message.CancelErrand("errand-0001", 1, 9))
        worker.outcome(stream)
    both = one.sh(one.send_base(project), "echo $CUDA_VISIBLE_DEVICES", name="errand-0004", gpus=2)
    assert one.outcome(both).state == "ended" and one.printed(both) == b"0,1\n"

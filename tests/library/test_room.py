"""Rooms: commands, forks, files, applies, as a program calls them."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mudroom
from conftest import Place, full_listing
from mudroom.errors import CommandNotStarted, ForkExists, ForkMoved, MudroomError, Refused, UsageError
from rooms import LONG, environ_of, open_room, policy, until


@pytest.fixture
def room(place: Place) -> Iterator[mudroom.Room]:
    place.write("a.txt", "one\n")
    with open_room(place) as room:
        yield room


def test_a_command_s_result_has_output_changes_and_exit_code(room: mudroom.Room, place: Place) -> None:
    before = full_listing(place.project)
    result = room.run("echo two >> a.txt; echo three > b.txt; echo out; echo err >&2; exit 3", fork="a")
    assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("out\n", "err\n", 3, False)
    assert (result.stdout_bytes, result.fork, result.signal, result.timed_out) == (b"out\n", "a", None, False)
    assert [(change.path, change.kind, change.added, change.removed) for change in result.changes] == [
        ("a.txt", "modified", 1, 0),
        ("b.txt", "added", 1, 0),
    ]
    assert str(result.changes) == "modified  a.txt  +1 -0\nadded     b.txt  +1 -0"
    assert result.changes.paths == ["a.txt", "b.txt"]
    assert result.duration > 0
    assert full_listing(place.project) == before


def test_check_raises_with_the_result(room: mudroom.Room) -> None:
    with pytest.raises(mudroom.CommandFailed, match=r"`sh -c 'echo no >&2; exit 7'` exited with 7 \(no\)") as failed:
        room.run("echo no >&2; exit 7", check=True)
    assert (failed.value.result.exit_code, failed.value.exit_code) == (7, 7)
    assert room.run(["true"], check=True).check().ok


def test_a_list_is_not_read_by_a_shell(room: mudroom.Room) -> None:
    assert room.run(["echo", "$HOME;", Path("a b"), b"\xff"]).stdout_bytes == b"$HOME; a b \xff\n"


def test_output_that_is_no_text_is_shown_and_kept(room: mudroom.Room) -> None:
    result = room.run(["printf", r"\377x"])
    assert (result.stdout, result.stdout_bytes) == ("�x", b"\xffx")


def test_input_environment_and_directory(room: mudroom.Room, place: Place) -> None:
    place.write("src/x", "")
    result = room.run("cat; echo $GREETING; pwd", input="in é\n", env={"GREETING": "hello you"}, cwd="src")
    assert result.stdout == f"in é\nhello you\n{place.project}/src\n"
    assert room.run("cat; echo $GREETING", input=b"\xff").stdout_bytes == b"\xff\n"
    assert room.run("cat").stdout == "", "the input of this process is not the command's"


def test_a_command_out_of_time_is_ended_and_its_changes_are_there(room: mudroom.Room) -> None:
    result = room.run("echo x > made; exec sleep 1000", fork="a", timeout=0.2)
    assert (result.timed_out, result.ok, result.changes.paths) == (True, False, ["made"])
    with pytest.raises(mudroom.CommandFailed, match="ran out of time after"):
        result.check()


def test_commands_of_several_threads_run_side_by_side(room: mudroom.Room) -> None:
    """Each waits for a file of its own that is written while all run."""
    results: dict[int, mudroom.RunResult] = {}

    def one(number: int) -> None:
        results[number] = room.run(f"echo {number} > n; cat n", fork=f"try-{number}")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: result.stdout for number, result in results.items()} == {n: f"{n}\n" for n in range(6)}
    assert sorted(fork.name for fork in room.forks()) == [f"try-{n}" for n in range(6)]


def test_two_rooms_on_one_project(room: mudroom.Room, place: Place) -> None:
    with open_room(place) as other:
        room.fork("a").write("from-one", "1")
        room.fork("a").flush()
        assert other.fork("a").read("from-one") == "1"
        other.run("echo 2 > from-two", fork="a")
        assert room.fork("a").list() == other.fork("a").list()
        assert room.apply("a").ok
        assert other.changes("a").paths == []


def test_files_of_a_fork(room: mudroom.Room, place: Place) -> None:
    fork = room.fork("a")
    fork.write("notes/x.md", "a é\nb\n")
    assert fork.edit("notes/x.md", "b", "c") == 1
    fork.write("raw", b"\xff\0")
    assert (fork.read("notes/x.md"), fork.read_bytes("raw"), fork.read("a.txt")) == ("a é\nc\n", b"\xff\0", "one\n")
    assert [(entry.name, entry.kind) for entry in fork.list()] == [
        ("a.txt", "file"),
        ("notes", "directory"),
        ("raw", "file"),
    ]
    assert fork.glob("**/*.md") == ["notes/x.md"]
    assert [(match.path, match.line) for match in fork.search("^c")] == [("notes/x.md", 2)]
    fork.move("raw", "kept")
    fork.delete("notes", recursive=True)
    assert (fork.exists("kept"), fork.exists("raw"), fork.exists("notes")) == (True, False, False)
    assert fork.run(["cat", "kept"]).stdout_bytes == b"\xff\0"
    assert fork.changes().paths == ["kept"]
    assert not (place.project / "kept").exists()
    with pytest.raises(FileNotFoundError):
        fork.read("gone")
    with pytest.raises(UsageError, match="leads out of the project"):
        fork.read("../x")
    with pytest.raises(UsageError, match="the old text is not in it"):
        fork.edit("a.txt", "nothing", "x")


def test_an_absolute_path_in_the_project_is_the_project_s(room: mudroom.Room, place: Place) -> None:
    fork, project = room.fork("a"), place.project
    fork.write(project / "d/new.txt", "x")
    assert (fork.read(f"{project}/d/new.txt"), fork.exists(project), fork.glob(f"{project}/**/*.txt")) == (
        "x",
        True,
        ["a.txt", "d/new.txt"],
    )
    assert [entry.name for entry in fork.list(project)] == ["a.txt", "d"]
    fork.move(project / "d/new.txt", project / "moved")
    assert room.diff("a", project / "moved").count("+x") == 1
    assert room.apply("a", [project / "moved"]).written == 1
    for path in (f"{project}x", f"{project}/../x", "/etc/passwd"):
        with pytest.raises(UsageError):
            fork.read(path)
    with pytest.raises(UsageError, match=f"the project is {project}"):
        room.diff("a", "/etc/passwd")


def test_an_error_of_a_file_is_python_s_and_mudroom_s(room: mudroom.Room) -> None:
    fork = room.fork("a")
    fork.write("d/x", "")
    cases: list[tuple[Callable[[], object], type[OSError], str]] = [
        (lambda: fork.read("gone"), FileNotFoundError, "gone: No such file or directory"),
        (lambda: fork.read("d"), IsADirectoryError, "d: Is a directory"),
        (lambda: fork.read("a.txt/x"), NotADirectoryError, "a.txt/x: Not a directory"),
        (lambda: fork.delete("d"), OSError, "d: Directory not empty"),
    ]
    for call, kind, text in cases:
        with pytest.raises(MudroomError) as failed:
            call()
        error = failed.value
        assert isinstance(error, kind)
        again = pickle.loads(pickle.dumps(error))
        for one in (error, again):
            assert (type(one), str(one), one.message, one.hint) == (type(error), text, text, "")
            assert (one.errno, one.filename) == (error.errno, text.partition(":")[0])


def test_a_name_that_is_no_text_goes_round(room: mudroom.Room) -> None:
    name = os.fsdecode(b"caf\xe9")
    result = room.run(["sh", "-c", 'echo x > "$1"', "sh", name], fork="a")
    assert result.changes.paths == [name]
    assert room.fork("a").read(name) == "x\n"
    assert room.fork("a").glob("caf*") == [name]
    assert str(result.changes) == r"added     caf\xe9  +1 -0"
    assert room.apply("a", [name]).ok


def test_checkpoints(room: mudroom.Room) -> None:
    fork = room.fork("a")
    fork.write("x", "1")
    fork.checkpoint("half")
    fork.write("x", "2")
    undo = fork.rollback("half")
    assert (fork.read("x"), undo is not None) == ("1", True)
    assert "half" in fork.checkpoints()
    fork.rollback(undo)
    assert fork.read("x") == "2"
    again = room.fork("b", parent="a", at="half")
    assert again.read("x") == "1"
    with pytest.raises(ForkExists):
        room.fork("b", parent="a")


def test_apply_undo_redo(room: mudroom.Room, place: Place) -> None:
    room.run("echo two > a.txt; echo new > b.txt", fork="a")
    assert "+two" in room.diff("a") and "b.txt" not in room.diff("a", "a.txt")
    done = room.apply("a", ["a.txt"])
    assert (done.ok, done.written, done.remaining) == (True, 1, 1)
    assert ((place.project / "a.txt").read_text(), (place.project / "b.txt").exists()) == ("two\n", False)
    assert room.undo(done.name).ok
    assert (place.project / "a.txt").read_text() == "one\n"
    assert room.redo().check().ok
    assert (place.project / "a.txt").read_text() == "two\n"
    assert [event.kind for event in room.journal(kinds=["apply", "undo", "redo"])] == ["apply", "undo", "redo"]


def test_a_conflict_is_a_value(room: mudroom.Room, place: Place) -> None:
    room.run("echo mine > a.txt; echo new > b.txt", fork="a")
    place.write("a.txt", "theirs\n")
    done = room.apply("a")
    assert (done.state, list(done.conflicts), done.written) == ("conflicts", ["a.txt"], 1)
    with pytest.raises(mudroom.NotApplied, match=r"a\.txt was not applied"):
        done.check()
    assert (place.project / "a.txt").read_text() == "theirs\n"


def test_a_verification_decides(room: mudroom.Room, place: Place) -> None:
    room.run("echo two > a.txt", fork="a")
    refused = room.apply("a", verify="grep -q three a.txt || { echo no three; exit 1; }")
    assert (refused.state, refused.exit_code, refused.output) == ("unverified", 1, "no three\n")
    assert (place.project / "a.txt").read_text() == "one\n"
    with pytest.raises(mudroom.NotApplied, match="nothing was applied"):
        refused.check()
    assert room.apply("a", verify=["grep", "-q", "two", "a.txt"]).exit_code == 0
    assert (place.project / "a.txt").read_text() == "two\n"


def test_an_apply_of_what_was_reviewed(room: mudroom.Room, place: Place) -> None:
    fork = room.fork("a")
    fork.run("echo two > a.txt")
    seen = fork.fingerprint()
    fork.run("echo three > a.txt")
    with pytest.raises(ForkMoved):
        fork.apply(reviewed=seen)
    assert (place.project / "a.txt").read_text() == "one\n"
    assert fork.apply(reviewed=fork.fingerprint()).ok


def test_output_as_it_comes(room: mudroom.Room) -> None:
    heard: list[mudroom.OutputChunk] = []
    result = room.run("echo a; echo b >&2", on_output=heard.append)
    assert {chunk.stream: chunk.text for chunk in heard} == {"stdout": "a\n", "stderr": "b\n"}
    assert result.stdout == "a\n"


def test_a_character_that_is_cut_is_whole_in_the_text(room: mudroom.Room) -> None:
    """The first byte of é is read before the second is written."""
    heard: list[mudroom.OutputChunk] = []
    assert not room.fork("a").exists("go")
    with room.stream(r"printf '\303'; until [ -e go ]; do :; done; printf '\251\303'", fork="a") as stream:
        heard.append(next(stream))
        room.fork("a").write("go", "")
        heard += stream
    assert [chunk.data for chunk in heard][:2] == [b"\xc3", b"\xa9\xc3"]
    assert "".join(chunk.text for chunk in heard) == "é�"


def test_a_stream_that_is_left_ends_its_command(room: mudroom.Room) -> None:
    with room.stream("echo x > made; echo first; exec sleep 1000", fork="a") as stream:
        for chunk in stream:
            assert chunk.text == "first\n"
            break
    assert room.changes("a").paths == ["made"]
    assert stream.wait().signal == 15


def test_a_stream_has_the_result_at_its_end(room: mudroom.Room) -> None:
    stream = room.stream("echo a; exit 2", fork="a")
    with pytest.raises(UsageError) as raised:
        _ = stream.result
    unread = "the command has not ended, or its output was not read to the end (call wait() for it)"
    assert str(raised.value) == unread
    assert "".join(chunk.text for chunk in stream) == "a\n"
    assert stream.result.exit_code == 2
    with pytest.raises(CommandNotStarted):
        list(room.stream(["no-such-program"]))


def test_the_error_of_a_stream_that_is_not_read_is_raised_by_wait(room: mudroom.Room) -> None:
    """It pointed to an error that the stream had never raised."""
    stream = room.stream(["no-such-program"])
    with pytest.raises(CommandNotStarted):
        stream.wait()
    for again in (stream.wait, lambda: stream.result):
        with pytest.raises(MudroomError) as raised:
            again()
        assert str(raised.value) == (
            "the command has no result: the stream has raised its error "
            "(catch the error where the output is read, or at wait())"
        )


def test_a_stream_holds_its_command_back_and_does_not_fill_memory(room: mudroom.Room) -> None:
    """The command writes 64 MiB; at most 64 pieces of 64 KiB are in memory, and every byte is passed on."""
    total = 0
    with room.stream("head -c 67108864 /dev/zero") as stream:
        for chunk in stream:
            total += len(chunk.data)
            assert len(stream._shared._chunks) <= 64
    assert (total, stream.result.truncated, len(stream.result.stdout_bytes)) == (1 << 26, True, 8 << 20)


def test_output_is_kept_up_to_a_limit(place: Place) -> None:
    with mudroom.open(place.project, output_limit=1000, environ=environ_of(place)) as room:
        result = room.run("head -c 5000 /dev/zero; echo end >&2")
    assert (len(result.stdout_bytes), result.truncated, result.stderr) == (1000, True, "end\n")
    assert result.limits == ("cut: output, 1 kB",)


def test_an_exception_of_a_callback_ends_the_command(room: mudroom.Room) -> None:
    def broken(_chunk: mudroom.OutputChunk) -> None:
        raise ZeroDivisionError("of the caller")

    with pytest.raises(ZeroDivisionError, match="of the caller"):
        room.run("echo x > made; echo first; exec sleep 1000", fork="a", on_output=broken)
    assert room.changes("a").paths == ["made"]


def test_a_background_command(room: mudroom.Room) -> None:
    server = room.start("echo up; echo x > made; exec sleep 1000", fork="a")
    until(lambda: server.output()[0] == "up\n")
    assert (server.poll(), server.wait(0.01), server.fork) == (None, None, "a")
    assert room.run("cat made", fork="a").stdout == "x\n", "beside it"
    assert room.background(server.id).command == ("sh", "-c", "echo up; echo x > made; exec sleep 1000")
    ended = server.end()
    assert ended is not None and (ended.signal, ended.ok) == (15, False)
    assert room.changes("a").paths == ["made"]
    with pytest.raises(UsageError, match="there is no background command"):
        room.background("nothing")


def test_an_apply_right_after_a_background_command(room: mudroom.Room, place: Place) -> None:
    for number in range(20):
        server = room.start(f"echo {number} > a.txt; echo up; exec sleep 1000", fork="a")
        until(lambda server=server: server.output()[0])  # type: ignore[misc]
        server.end()
        assert room.apply("a").state == "applied"


def test_a_fork_as_a_directory(room: mudroom.Room) -> None:
    fork = room.fork("a")
    with fork.mount() as place:
        (place / "made").write_text("x")
        assert (place / "a.txt").read_text() == "one\n"
    assert fork.read("made") == "x"
    assert fork.changes().paths == ["made"]


def test_blocks_of_one_directory_share_it(room: mudroom.Room) -> None:
    with room.fork("a").mount() as outer:
        with room.fork("a").mount() as inner:
            assert inner == outer
        (outer / "made").write_text("x")
    assert not outer.exists()
    together, failures = threading.Barrier(4), list[BaseException]()

    def work(number: int) -> None:
        try:
            together.wait()
            with room.fork("a").mount() as place:
                (place / f"of-{number}").write_text("x")
                assert room.run(f"cat of-{number}", fork="a", check=True).stdout == "x"
        except BaseException as error:  # noqa: BLE001 - asserted below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert room.fork("a").changes().paths == ["made", *(f"of-{number}" for number in range(4))]
    assert not outer.exists()


def test_a_directory_that_the_user_has_mounted_stays(place: Place, room: mudroom.Room) -> None:
    session = place.session()
    session.forks.new("a")
    at = os.fsdecode(session.forks.mount("a").place)
    with room.fork("a").mount() as mounted:
        assert os.fspath(mounted) == at
    assert "a" in session.forks.mounts()
    session.forks.unmount("a")
    with room.fork("a").mount() as mounted:
        assert mounted.is_dir()
        session.forks.unmount("a")
    assert session.forks.mounts() == {}
    with room.fork("a").mount() as mounted:
        pass
    assert not mounted.exists()


@pytest.mark.both_users
@pytest.mark.root
def test_a_directory_that_is_in_use_is_ended_by_the_next_block(room: mudroom.Room) -> None:
    fork = room.fork("a")
    if os.geteuid() != 0:
        pytest.skip("a copy is never in use")
    with pytest.raises(mudroom.MudroomError, match="cannot be unmounted"), fork.mount() as place:
        held = open(place / "a.txt")  # noqa: SIM115 - it is open beyond the block
    held.close()
    with fork.mount() as again:
        assert again == place
    assert not place.exists()


def test_an_agent_s_command_is_judged(place: Place) -> None:
    policy(place, "commands: {rules: [{pattern: rm, action: deny, reason: files stay, instead: git rm}]}\n")
    place.write("a.txt", "one\n")
    with open_room(place, agent="coder") as room:
        result = room.run(["rm", "a.txt"], fork="a")
        with pytest.raises(Refused) as raised:
            room.start(["rm", "a.txt"], fork="b")
    assert str(raised.value) == "the command was refused: files stay (user policy.yaml:1) (git rm)"
    assert (result.ran, result.ok, result.exit_code, result.changes.paths) == (False, False, 126, [])
    assert result.reason == "files stay; git rm"
    with pytest.raises(mudroom.CommandFailed, match=r"`rm a\.txt` was refused: "):
        result.check()
    with open_room(place) as own:
        assert own.run(["rm", "a.txt"]).changes.paths == ["a.txt"], "the program's own commands are not judged"


@pytest.mark.parametrize("answer", [True, False, None, "yes", 1])
def test_only_true_allows(place: Place, answer: object) -> None:
    policy(place, "commands: {classes: {destructive: require_approval}}\n")
    asked: list[mudroom.Question] = []

    def ask(question: mudroom.Question) -> bool:
        asked.append(question)
        return answer  # type: ignore[return-value]  # a caller may be wrong

    place.write("a.txt", "one\n")
    with open_room(place, agent="coder", ask=ask) as room:
        result = room.run(["rm", "-rf", "a.txt"], fork="a")
    assert result.ran is (answer is True)
    assert [(question.kind, question.command, question.agent, question.fork) for question in asked] == [
        ("command", ("rm", "-rf", "a.txt"), "coder", "a")
    ]
    assert str(asked[0]).startswith("may coder run `rm -rf a.txt`? (")


def test_an_approver_that_fails_refuses(place: Place) -> None:
    policy(place, "commands: {classes: {destructive: require_approval}}\n")

    def ask(_question: mudroom.Question) -> bool:
        raise RuntimeError("no connection")

    with open_room(place, agent="coder", ask=ask) as room:
        result = room.run(["rm", "-rf", "a.txt"])
    assert not result.ran and "RuntimeError: no connection" in result.reason


def test_an_error_says_who_is_at_fault(room: mudroom.Room) -> None:
    with pytest.raises(CommandNotStarted) as missing:
        room.run(["no-such-program"])
    assert missing.value.exit_code == 127 and isinstance(missing.value, MudroomError)
    with pytest.raises(UsageError, match="no fork named nothing"):
        room.changes("nothing")
    with pytest.raises(UsageError, match="no fork named nothing"):
        room.discard("nothing")


def test_a_fork_is_discarded_right_after_its_command_in_the_background(place: Place) -> None:
    """The sandbox ends a moment after its last command."""
    with open_room(place) as room:
        for _ in range(5):
            fork = room.fork()
            command = fork.start(["sleep", LONG])
            assert fork.run("echo beside > it").ok
            assert command.end() is not None
            fork.discard()
        assert room.forks() == []

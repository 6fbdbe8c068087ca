"""The tools that front doors for agents share: each by use, and what a model sends wrongly."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, full_listing
from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.command.policy import ClassRule, CommandPolicy
from mudroom.core.command.verdict import Action
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.ext.agents.tools.schema import checked
from mudroom.ext.agents.tools.table import TOOLS, call
from mudroom.ext.agents.tools.tool import ALONE, ToolContext, ToolResult
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from mudroom.sandbox.client.cancellation import Cancellation, Cancelled
from whole_text import whole


class Desk:
    """A workspace, and calls on it."""

    def __init__(self, place: Place, settings: Settings | None = None, fork: str | None = "f") -> None:
        self.session = place.session(settings, agent="agent")
        self.workspace = ToolWorkspace(self.session, fork)

    def __call__(self, tool: str, context: ToolContext = ALONE, /, **arguments: Any) -> ToolResult:
        result = call(self.workspace, tool, arguments, context)
        if not result.is_error:
            fits(TOOLS[tool].output_schema, dict(result.data))
        return result


def fits(schema: Any, value: Any) -> None:
    """Check a result against the parts of JSON Schema that output schemas use."""
    kinds: dict[str, Any] = {
        "object": dict, "array": (list, tuple), "string": str, "integer": int, "number": (int, float),
        "boolean": bool, "null": type(None),
    }  # fmt: skip
    names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    assert isinstance(value, tuple(kinds[name] for name in names)), (schema, value)
    inside: Any = value
    for name in schema.get("required", ()):
        assert name in inside
    for name, row in schema.get("properties", {}).items():
        if name in inside:
            fits(row, inside[name])
    for item in inside if "items" in schema else ():
        fits(schema["items"], item)


@pytest.fixture
def desk(place: Place) -> Desk:
    place.write("src/a.py", "one\ntwo\nthree\n")
    place.write("README.md", "# the project\n")
    return Desk(place)


def test_the_table_has_the_tools_that_were_promised() -> None:
    names = "bash read write edit multi_edit list glob grep diff status drop_held checkpoint rollback forks remarks why"
    assert sorted(TOOLS) == sorted(names.split())
    for tool in TOOLS.values():
        assert tool.description and tool.title
        assert tool.input_schema["additionalProperties"] is False
        assert not (tool.hints.read_only and tool.hints.destructive)


def test_what_tools_do_is_staged_and_the_project_stays(place: Place, desk: Desk) -> None:
    before = full_listing(place.project)
    assert desk("read", path="src/a.py").data["text"] == "one\ntwo\nthree"
    assert desk("edit", path="src/a.py", old_string="two", new_string="2").data["replacements"] == 1
    assert desk("write", path="new/b.txt", content="b\n").data["created"]
    result = desk("bash", command="cat src/a.py new/b.txt; rm README.md")
    assert result.data["output"] == "one\n2\nthree\nb\n"
    assert result.data["exit_code"] == 0
    assert [entry["name"] for entry in desk("list").data["entries"]] == ["new", "src"]
    assert "-two\n+2\n" in desk("diff").data["diff"]
    status = desk("status").data
    assert {row["path"] for row in status["changes"]} == {"src/a.py", "new/b.txt", "README.md"}
    assert status["fork"] == "f"
    assert full_listing(place.project) == before


def test_a_write_is_there_for_another_process_as_soon_as_its_call_returns(place: Place, desk: Desk) -> None:
    desk("write", path="x", content="1")
    assert place.session().forks.files("f").read("x") == b"1"


def test_an_edit_that_does_not_fit_says_what_is_there(desk: Desk) -> None:
    desk("write", path="t", content="a\nb\na\n")
    twice = desk("edit", path="t", old_string="a", new_string="c")
    assert twice.is_error and "2 times, at lines 1, 3" in twice.text and "replace_all" in twice.text
    missing = desk("edit", path="t", old_string="  b\nx", new_string="c")
    assert missing.is_error and "was not found" in missing.text and "line 2" in missing.text
    assert desk("edit", path="t", old_string="a", new_string="c", replace_all=True).data["replacements"] == 2
    assert desk("edit", path="t", old_string="", new_string="c").is_error
    assert desk("edit", path="t", old_string="c", new_string="c").is_error
    assert desk("read", path="t").data["text"] == "c\nb\nc"


def test_several_edits_are_made_all_or_none(desk: Desk) -> None:
    edits = [{"old_string": "one", "new_string": "1"}, {"old_string": "1\ntwo", "new_string": "12"}]
    assert desk("multi_edit", path="src/a.py", edits=edits).data["replacements"] == 2
    assert desk("read", path="src/a.py").data["text"] == "12\nthree"
    failing = desk("multi_edit", path="src/a.py", edits=[{"old_string": "12", "new_string": "x"}, edits[0]])
    assert failing.is_error and "edit 2 of 2" in failing.text
    assert desk("read", path="src/a.py").data["text"] == "12\nthree"


def test_a_file_with_crlf_keeps_it(place: Place, desk: Desk) -> None:
    desk("bash", command=r"printf 'a\r\nb\r\n' > crlf")
    assert not desk("edit", path="crlf", old_string="a\nb\n", new_string="c\nd\n").is_error
    assert desk.session.forks.files("f").read("crlf") == b"c\r\nd\r\n"


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../outside", "src/../../x", "a\0b", "", "x" * 5_000, "link/passwd", "out", "n" * 300, "\udfff"],
)
@pytest.mark.parametrize("tool", ["read", "write", "edit", "multi_edit", "list", "diff", "bash"])
def test_no_path_leads_out(place: Place, desk: Desk, tool: str, path: str) -> None:
    outside = place.root / "outside"
    outside.write_text("secret")
    (place.project / "link").symlink_to("/etc")
    (place.project / "out").symlink_to("../outside")
    if not path and tool in ("list", "bash"):
        return  # the project itself
    arguments: dict[str, dict[str, Any]] = {
        "diff": {"paths": [path]},
        "bash": {"command": "true", "cwd": path},
        "write": {"path": path, "content": "x"},
        "edit": {"path": path, "old_string": "r", "new_string": "s"},
        "multi_edit": {"path": path, "edits": [{"old_string": "r", "new_string": "s"}]},
    }
    result = desk(tool, **arguments.get(tool, {"path": path}))
    assert result.is_error, result.text
    assert "root:" not in result.text and "secret" not in result.text
    assert outside.read_text() == "secret"


def test_links_inside_are_followed_in_the_view(place: Place, desk: Desk) -> None:
    desk("bash", command=f"ln -s src/a.py rel; ln -s {place.project}/src abs; ln -s loop loop")
    assert desk("read", path="rel").data["path"] == "src/a.py"
    assert desk("read", path="abs/a.py").data["text"].startswith("one")
    assert desk("read", path=f"{place.project}/src/../src/a.py").data["path"] == "src/a.py"
    assert desk("read", path="loop").is_error
    assert not desk("edit", path="rel", old_string="one", new_string="1").is_error
    assert desk("bash", command="test -L rel && head -1 src/a.py").data["output"] == "1\n"


def test_a_missing_file_is_answered_with_what_is_near(desk: Desk) -> None:
    result = desk("read", path="src/A.PY")
    assert result.is_error and "there is src/a.py" in result.text
    assert "a directory" in desk("read", path="src").text


def test_a_long_file_is_read_in_parts(desk: Desk) -> None:
    desk("bash", command="seq 5000 > n; head -c 3000000 /dev/zero | tr '\\0' x > line; printf 'a\\0b' > bin")
    first = desk("read", path="n")
    assert first.data["more"] and f"offset {first.data['last_line'] + 1}" in first.text
    assert desk("read", path="n", offset=4_999).data["text"] == "4999\n5000"
    assert desk("read", path="n", offset=6_000).is_error
    assert len(desk("read", path="line").text) < 3_000
    assert "binary" in desk("read", path="bin").text


def test_files_are_found_by_name_and_content(desk: Desk) -> None:
    desk(
        "bash",
        command="mkdir -p node_modules/m .git2 'od[d]'; echo needle > node_modules/m/i.js; echo x > 'od[d]/q.js'",
    )
    assert desk("glob", pattern="*.py").data["paths"] == ["src/a.py"]
    everywhere = desk("glob", pattern="*.js")
    assert everywhere.data["paths"] == ["od[d]/q.js"] and "node_modules" in everywhere.text
    assert desk("glob", pattern="node_modules/**/*.js").data["paths"] == ["node_modules/m/i.js"]
    assert desk("glob", pattern="*.js", path="od[d]").data["paths"] == ["od[d]/q.js"]
    found = desk("grep", pattern=r"^t\w+", glob="*.py")
    assert [(row["line"], row["text"]) for row in found.data["matches"]] == [(2, "two"), (3, "three")]
    assert "src/a.py-1-one\nsrc/a.py:2:two\n" in desk("grep", pattern="two", context=1).text
    assert desk("grep", pattern="NEEDLE", ignore_case=True, path="node_modules").data["files"] == 1
    assert desk("grep", pattern="needle").data["matches"] == []
    assert "not a regular expression" in desk("grep", pattern="(").text
    assert desk("glob", pattern="../*").is_error


def test_a_path_of_a_result_can_be_sent_back(desk: Desk) -> None:
    desk(
        "bash", command=r"printf x > 'back\slash'; printf x > $'line\nend'; printf x > $'esc\e[31m'; printf x > ' sp '"
    )
    paths = desk("glob", pattern="*").data["paths"]
    assert {"back\\slash", "line\nend", "esc\x1b[31m", " sp "} <= set(paths)
    for path in paths:
        assert not desk("read", path=path).is_error
    text = desk("glob", pattern="*").text + desk("list").text + desk("grep", pattern="x").text
    assert "\x1b" not in text and "line\nend" not in text


def test_an_expression_that_never_ends_is_ended(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mudroom.ext.agents.tools.matcher.SECONDS", 0.3)
    desk("write", path="evil", content="a" * 5_000 + "b\n")
    result = desk("grep", pattern="(a+)+$")
    assert result.is_error and "simpler" in result.text


@pytest.mark.parametrize("tool", ["glob", "grep"])
def test_a_search_for_names_ends_in_time_and_with_its_call(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    cancelled = ToolContext(Cancellation())
    assert cancelled.cancellation is not None
    cancelled.cancellation.cancel()
    assert desk(tool, cancelled, pattern="x").is_error
    monkeypatch.setattr("mudroom.ext.agents.tools.search.SECONDS", 0.0)
    result = desk(tool, pattern="x")
    assert result.is_error and "narrow path" in result.text


class GrowingTree:
    """A tree whose files are larger when they are read than when they were looked at."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def look(self, path: bytes) -> Any:
        entry = self._tree.look(path)
        return entry if entry is None or entry.kind != "file" else entry._replace(size=5)

    def read(self, path: bytes) -> bytes:
        raise AssertionError(f"{path!r} is read whole, of whatever size it is now")


def test_a_file_that_grows_meanwhile_is_not_read_whole(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk("bash", command="yes word | head -c 9000 > hole; truncate -s 100G hole; echo word > small")
    tree = desk.workspace.tree
    monkeypatch.setattr(desk.workspace, "tree", lambda: GrowingTree(tree()))
    result = desk("edit", path="hole", old_string="word", new_string="x", replace_all=True)
    assert result.is_error and "larger than" in result.text
    found = desk("grep", pattern="word")
    assert [match["path"] for match in found.data["matches"]] == ["small"]
    assert not found.data["complete"]


def policy(**actions: Action) -> Settings:
    return Settings(commands=CommandPolicy(tuple(ClassRule(name, what) for name, what in actions.items())))  # type: ignore[arg-type]


def test_a_refused_command_says_by_which_rule_and_is_not_run(place: Place) -> None:
    place.write("kept", "k")
    desk = Desk(place, policy(destructive="deny"))
    result = desk("bash", command="rm -rf kept")
    assert result.is_error
    assert "refused, and not run" in result.text and "class destructive" in result.text
    assert result.data["verdict"] == "deny"
    assert desk("read", path="kept").data["text"] == "k"
    assert desk("why", command="rm -rf kept").data["verdict"] == "deny"
    assert desk("bash", command="rm -rf kept", background=True).is_error


def test_the_caller_of_a_call_is_asked_about_its_command(place: Place) -> None:
    place.write("kept", "k")
    desk = Desk(place, policy(destructive="require_approval"))
    questions: list[CommandQuestion] = []

    def answered(allow: bool) -> ToolContext:
        def approve(question: CommandQuestion) -> CommandAnswer:
            questions.append(question)
            return CommandAnswer(allow, by="test")

        return ToolContext(approver=approve)

    refused = desk("bash", answered(False), command="rm kept")
    assert refused.is_error and "refused by test" in refused.text
    assert desk("bash", command="rm kept").is_error  # nobody is there to be asked
    assert desk("bash", answered(True), command="rm kept").data["exit_code"] == 0
    assert [question.command for question in questions] == [(b"bash", b"-c", b"rm kept")] * 2


def test_checkpoints_and_rollbacks(desk: Desk) -> None:
    assert desk("checkpoint", name="green").data["checkpoint"] == "green"
    desk("bash", command="rm -rf src README.md")
    assert desk("read", path="src/a.py").is_error
    assert "deleted" in desk("diff", since="green").text
    undone = desk("rollback", checkpoint="green").data
    assert desk("read", path="src/a.py").data["text"].startswith("one")
    desk("rollback", checkpoint=undone["undo"])
    assert desk("read", path="src/a.py").is_error
    assert "green" in desk("status").data["checkpoints"]
    assert desk("rollback", checkpoint="none").is_error
    assert desk("checkpoint", name="../x").is_error
    assert desk("checkpoint", name="green").is_error


def test_a_command_in_the_background(desk: Desk) -> None:
    started = desk("bash", command="echo up; sleep 1000", background=True)
    assert desk("bash", command="echo beside").data["output"] == "beside\n"
    identity = started.data["id"]
    assert started.data["running"]
    assert identity in desk("status").text
    assert desk("rollback").is_error
    desk("bash", id=identity, end=True)
    ended = desk("bash", id=identity, wait=10)
    assert ended.data["running"] is False
    assert desk("bash", id="nothing").is_error
    assert desk("bash", id=identity, command="true").is_error
    assert desk("bash", id=identity, timeout=3).is_error


def test_background_output_goes_on_where_the_last_answer_ended(desk: Desk) -> None:
    started = desk("bash", command="echo one; until test -e go; do sleep 0.01; done; echo two", background=True)
    identity = started.data["id"]
    first = desk("bash", id=identity)
    while "one" not in first.data["output"]:
        first = desk("bash", id=identity, wait=0.1)
    desk("write", path="go", content="")
    second = desk("bash", id=identity, since=first.data["since"], wait=20)
    assert second.data["output"] == "two\n"
    assert second.data["exit_code"] == 0


def test_long_output_is_cut_in_the_middle_and_its_rest_can_be_had(desk: Desk) -> None:
    result = desk("bash", command="seq 20000")
    assert result.data["truncated"] and len(result.data["output"]) < 31_000
    assert result.data["output"].startswith("1\n2\n") and result.data["output"].endswith("20000\n")
    collected, since = "", "0"
    while True:
        part = desk("bash", id=result.data["id"], since=since)
        collected, since = collected + part.data["output"], part.data["since"]
        if not part.data["truncated"]:
            break
    assert collected == "".join(f"{number}\n" for number in range(1, 20001))


def test_output_is_passed_on_as_it_comes(desk: Desk) -> None:
    pieces: list[tuple[str, bytes]] = []
    desk(
        "bash", ToolContext(on_output=lambda stream, data: pieces.append((stream, data))), command="echo a; echo b >&2"
    )
    assert b"".join(data for stream, data in pieces if stream == "stdout") == b"a\n"
    assert b"".join(data for stream, data in pieces if stream == "stderr") == b"b\n"


def test_a_cancelled_call_ends_its_command_alone(place: Place, desk: Desk) -> None:
    cancellation, other = Cancellation(), Cancellation()
    started = threading.Event()
    context = ToolContext(cancellation=cancellation, on_output=lambda _stream, _data: started.set())
    results: list[ToolResult] = []
    thread = threading.Thread(
        target=lambda: results.append(
            call(desk.workspace, "bash", {"command": "trap '' TERM; touch was; echo up; sleep 1000"}, context)
        )
    )
    thread.start()
    assert started.wait(60)
    other.cancel()
    cancellation.cancel()
    thread.join(60)
    assert results[0].data["exit_code"] == 128 + 9
    assert "denials" not in results[0].data  # what is empty is left out
    assert desk("list").data["entries"][-1]["name"] == "was"
    with pytest.raises(Cancelled):
        call(desk.workspace, "bash", {"command": "touch never"}, ToolContext(cancellation=cancellation))
    assert desk("read", path="never").is_error


def test_writes_beside_a_command_that_begins_are_there_or_refused(desk: Desk) -> None:
    """Refused is one between whose write and check the command's mount came up."""
    accepted = 0
    for number in range(6):
        thread = threading.Thread(target=lambda: desk("bash", command="sleep 0.2"))
        thread.start()
        while thread.is_alive():
            written = desk("write", path="beside", content=str(number))
            assert not written.is_error or "another writer has changed it" in written.text, written.text
            accepted += not written.is_error
        thread.join()
        assert not desk("write", path="beside", content=f"{number}, at rest").is_error
        assert desk("bash", command="cat beside").data["output"] == f"{number}, at rest"
    assert accepted > 6


def test_two_threads_edit_one_file_and_no_edit_is_lost(desk: Desk) -> None:
    desk("write", path="n", content="".join(f"<{number}>\n" for number in range(20)))

    def edit(start: int) -> None:
        for number in range(start, 20, 2):
            assert not desk("edit", path="n", old_string=f"<{number}>", new_string=f"[{number}]").is_error

    threads = [threading.Thread(target=edit, args=(start,)) for start in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert desk("read", path="n").data["text"] == "\n".join(f"[{number}]" for number in range(20))


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("nothing", {}, "there is no tool 'nothing'"),
        ("read", {}, "the argument path is missing"),
        ("read", {"path": 3}, "path: a string was expected, not 3"),
        ("read", {"path": "x", "offset": 0}, "offset: 1 to 1,000,000,000 is allowed"),
        ("read", {"path": "x", "offset": 1e400}, "offset"),
        ("read", {"path": "x", "offset": True}, "offset: an integer was expected, not true"),
        ("read", {"path": "x", "offset": 10**5000}, "more than 18 digits"),
        ("read", {"file_path": "x"}, "there is no argument 'file_path'; path is meant?"),
        ("read", {"path": None}, "path: a string was expected, not null"),
        ("multi_edit", {"path": "x", "edits": []}, "1 to 200 items"),
        ("multi_edit", {"path": "x", "edits": [{"old_string": "a"}]}, "edits[0]"),
        ("read", [], "an object was expected"),
        ("bash", {"command": ""}, "command is missing"),
        ("bash", {"command": "x" * 200_001}, "at most 200,000 characters"),
        ("why", {}, "one of command, path and host"),
    ],
)
def test_wrong_arguments_are_told(desk: Desk, name: str, arguments: Any, words: str) -> None:
    result = call(desk.workspace, name, arguments if arguments != [] else [1])
    assert result.is_error
    assert words in result.text, result.text


def test_an_argument_of_null_is_as_left_out() -> None:
    assert checked(TOOLS["read"].input_schema, {"path": "x", "offset": None}, "read")["offset"] == 1


def test_why(desk: Desk) -> None:
    assert desk("why", command="ls").data["verdict"] == "allow"
    assert desk("why", path="src/a.py").data["verdict"] == "staged"
    assert desk("why", path="/etc/shadow").data["verdict"] in ("hidden", "read-only")
    assert desk("why", host="example.com").data["verdict"] in ("deny", "ask")


def test_a_fork_of_its_own_is_made_at_first_use_and_goes_unless_it_was_used(place: Place) -> None:
    first, second = Desk(place, fork=None), Desk(place, fork=None)
    assert first.workspace.fork_or_none is None
    assert first("status").data["fork"] == "agent"
    assert second("status").data["fork"] == "agent-2"
    assert [row["fork"] for row in first("forks").data["forks"] if row["own"]] == ["agent"]
    second("write", path="x", content="")
    first.workspace.close()
    second.workspace.close()
    assert [fork.name for fork in place.session().vault.forks()] == ["agent-2"]


def test_names_of_clients_become_names_of_forks() -> None:
    from mudroom.ext.agents.tools.workspace import fork_stem

    assert fork_stem("Claude Code") == "claude-code"
    assert fork_stem("../../etc") == "etc"
    assert fork_stem("\x1b[31m") == "31m"
    assert fork_stem("日本") == "agent"
    assert len(fork_stem("x" * 1_000_000)) == 40


def test_the_matcher_needs_no_module_of_ours() -> None:
    import mudroom.ext.agents.tools.match as match

    assert "mudroom" not in "".join(
        line for line in Path(match.__file__).read_text().splitlines() if line.startswith(("import", "from"))
    )


def test_a_workspace_beside_a_thousand_others(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here four: each client of an agent that keeps its fork has one."""
    monkeypatch.setattr("mudroom.ext.agents.tools.workspace._TRIES", 4)
    session = place.session(agent="agent")
    for _client in range(3):
        assert session.forks.new(ToolWorkspace(session, None).fork + "-kept")
    told = "there are 4 forks named agent-N (mudroom ls lists them, mudroom discard NAME removes one)"
    with pytest.raises(MudroomError, match=whole(told)):
        _name = ToolWorkspace(session, None).fork

"""The answers of this machine: read strictly, written one line at a time, believed only if they are the user's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mudroom.core.network.host_rules import Action, HostRule, Request, decide, parse_rule, show_rule
from mudroom.errors import MudroomError, UsageError
from mudroom.policy.edit_yaml import CannotEdit, insert_text, remove_text
from mudroom.policy.host_answers import HostAnswerFile, HostRules, drop, keep, load, parse, section_of
from mudroom.policy.local_directory import LocalDirectory
from policy_files import own_settings

pytestmark = pytest.mark.both_users

FILE = ".mudroom/local/permissions.yaml"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def rule(text: str, action: str = "allow", *, private: bool = False) -> HostRule:
    return parse_rule(text, action, private=private)  # type: ignore[arg-type]


@pytest.fixture
def project(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the file, which may be written as if it were the user's."""
    (tmp_path / ".mudroom/local").mkdir(parents=True)
    (tmp_path / ".mudroom/local").chmod(0o700)
    path = tmp_path / FILE
    path.touch(0o600)
    path.unlink()
    return path


def write(path: Path, text: str | bytes, mode: int = 0o600) -> None:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)


# --- reading ---


def test_there_need_not_be_any(project: bytes, tmp_path: Path) -> None:
    assert load(project) == ()
    (tmp_path / ".mudroom").mkdir()
    assert load(project) == ()
    assert drop(project, "a.com") == ()
    assert list((tmp_path / ".mudroom").iterdir()) == []


def test_what_is_read(project: bytes, path: Path) -> None:
    write(path, 'allow:\n  - a.com  # why\n  - "*.b.com:22"\nask: ["*"]\ndeny:\nprivate:\n  - db.corp:5432\n')
    assert load(project) == (
        HostRule("allow", "a.com", source="permissions.yaml:2"),
        HostRule("allow", "*.b.com", (22,), source="permissions.yaml:3"),
        HostRule("ask", "*", source="permissions.yaml:4"),
        HostRule("allow", "db.corp", (5432,), private=True, source="permissions.yaml:7"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alow: [a.com]", ":1: there is no key alow (did you mean allow?)"),
        ("allow: a.com", ":1: allow must be a list of texts"),
        ("allow: {a.com: 1}", ":1: allow must be one value, or a list of texts"),
        ("allow:\n- a.com\n- 80\n", ":1: allow must be a list of texts"),
        ("allow:\n- a.com\n- a b\n", ":3: allow: a b: ' ' is not for names"),
        ("private:\n- 169.254.169.254\n", ":2: private: 169.254.169.254 is the metadata service of a cloud"),
        ("- a.com", ":1: the file must hold keys with values"),
        ("allow: [a.com]\nallow: [b.com]", ":2: allow is given twice"),
        ("allow: [a.com", "this is not YAML"),
        ("allow:\n- *.a.com\n", "put the text in quotes"),
        (b"allow: [\xff]", ":1: this is not UTF-8"),
        ("allow: " + "[" * 20, ":1: nested too deeply"),
        ("#" * (1 << 20) + "\n", "is larger than 1 MiB"),
    ],
)
def test_a_file_with_anything_wrong_in_it_is_an_error(project: bytes, path: Path, text: str | bytes, said: str) -> None:
    write(path, text)
    for attempt in (lambda: load(project), lambda: keep(project, rule("c.com")), lambda: drop(project, "a.com")):
        with pytest.raises(UsageError, match=re.escape(said)) as caught:
            attempt()
        assert caught.value.message.startswith(str(path))
        assert str(caught.value).isprintable()
    assert path.read_bytes() == (text.encode() if isinstance(text, str) else text)


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _replace(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


WRONG: list[tuple[str, Callable[[Path], object], str]] = [
    ("a linked file", _link, "permissions.yaml is a symbolic link"),
    ("a linked directory", lambda path: _link(path.parent), "/local is a symbolic link"),
    ("a link above", lambda path: _link(path.parent.parent), "/.mudroom is a symbolic link"),
    ("a dangling link", lambda path: _replace(path, "nowhere"), "is a symbolic link"),
    ("a loop", lambda path: _replace(path, path.name), "is a symbolic link"),
    ("a FIFO", _fifo, "permissions.yaml is not a regular file"),
    ("a directory", _directory, "permissions.yaml is not a regular file"),
    ("writable by the group", lambda path: path.chmod(0o660), "can be written by others (mode 0660) (chmod go-w "),
    ("writable by all", lambda path: path.chmod(0o602), "can be written by others (mode 0602)"),
    ("in a directory writable by all", lambda path: path.parent.chmod(0o777), "/local can be written by others"),
]


@pytest.mark.parametrize(("make", "said"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_may_not_be_the_users_is_not_believed(
    project: bytes, path: Path, make: Callable[[Path], object], said: str
) -> None:
    write(path, "allow: [a.com]\n")
    make(path)
    for attempt in (lambda: load(project), lambda: keep(project, rule("c.com"))):
        with pytest.raises(UsageError, match=re.escape(said)):
            attempt()


@pytest.mark.root
def test_a_file_of_somebody_else_is_not_believed(project: bytes, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, "allow: [a.com]\n")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4711)
    if os.getuid() == 0:  # what root wrote is believed by everybody
        assert [one.pattern for one in load(project)] == ["a.com"]
        os.chown(path, 1234, 1234)
    with pytest.raises(UsageError, match=r"belongs to another user \([0-9]+\) \(make it yours with chown"):
        load(project)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_read_is_an_error(project: bytes, path: Path) -> None:
    write(path, "deny: [a.com]\n", mode=0)
    with pytest.raises(UsageError, match=r"permissions\.yaml: Permission denied"):
        load(project)
    path.parent.chmod(0)
    with pytest.raises(UsageError, match="Permission denied"):
        load(project)
    path.parent.chmod(0o700)


def test_the_project_itself_may_be_reached_through_a_link(project: bytes, tmp_path: Path) -> None:
    keep(project, rule("a.com"))
    (tmp_path / "link").symlink_to(".")
    assert len(load(project + b"/link")) == 1


# --- writing ---


def test_the_first_rule_makes_the_file(project: bytes, tmp_path: Path) -> None:
    assert keep(project, rule("a.com"), "asked by npm install\n\x1b[31m") == HostAnswerFile(False, ())
    directory = tmp_path / ".mudroom/local"
    assert {one.name for one in directory.iterdir()} == {"lock", "permissions.yaml"}
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    text = (tmp_path / FILE).read_text()
    assert text.startswith("# Which hosts")
    assert text.endswith("allow:\n  - a.com  # asked by npm install\\n\\x1b[31m\n")
    assert load(project) == (rule("a.com")._replace(source="permissions.yaml:4"),)


MINE = """\
# mine

deny:  # never
- gist.github.com
# about the next one
- 'b.com'   # b

allow:
    -   a.com:22
    # last word

ask: ["*.x.com", y.com]
private:
"""


@pytest.mark.parametrize(
    ("new", "old_line", "expected"),
    [
        (rule("c.com", "deny"), "- 'b.com'   # b\n", "- 'b.com'   # b\n- c.com  # n\n"),
        (rule("c.com"), "    -   a.com:22\n", "    -   a.com:22\n    - c.com  # n\n"),
        (rule("*.c.com:1,2"), "    -   a.com:22\n", '    -   a.com:22\n    - "*.c.com:1,2"  # n\n'),
        (rule("no"), "    -   a.com:22\n", '    -   a.com:22\n    - "no"  # n\n'),
        (rule("1.2.3.4"), "    -   a.com:22\n", '    -   a.com:22\n    - "1.2.3.4"  # n\n'),
        (rule("2600::1:0"), "    -   a.com:22\n", '    -   a.com:22\n    - "2600::1:0"  # n\n'),
        (rule("c.com", "ask"), '["*.x.com", y.com]', '["*.x.com", y.com, "c.com"]'),
        (rule("db:1", private=True), "private:\n", 'private:\n  - "db:1"  # n\n'),
    ],
    ids=lambda value: show_rule(value) if isinstance(value, HostRule) else None,
)
def test_all_else_stays_byte_for_byte(project: bytes, path: Path, new: HostRule, old_line: str, expected: str) -> None:
    write(path, MINE)
    before = load(project)
    assert keep(project, new, "n") == HostAnswerFile(False, ())
    assert path.read_text() == MINE.replace(old_line, expected)
    assert keep(project, new, "again") == HostAnswerFile(True, ())
    assert [one._replace(source="") for one in drop(project, show_rule(new))] == [new]
    assert path.read_text() == MINE
    assert load(project) == before


@pytest.mark.parametrize(
    ("gone", "line", "left"),
    [
        ("gist.github.com", "- gist.github.com\n", ""),
        ("b.com", "- 'b.com'   # b\n", ""),
        ("A.com.:22", "    -   a.com:22\n", ""),
        ("*.x.com", '["*.x.com", y.com]', "[y.com]"),
        ("y.com", '["*.x.com", y.com]', '["*.x.com"]'),
    ],
)
def test_taking_a_rule_out(project: bytes, path: Path, gone: str, line: str, left: str) -> None:
    write(path, MINE)
    assert len(drop(project, gone)) == 1
    assert path.read_text() == MINE.replace(line, left)
    assert drop(project, gone) == ()


def test_what_said_otherwise_goes(project: bytes, path: Path) -> None:
    write(path, "allow:\n  - a.com\n  - b.com\ndeny:\n  - a.com:22\n")
    kept = keep(project, rule("a.com", "deny"))
    assert (kept.there, [one.action for one in kept.replaced]) == (False, ["allow"])
    assert path.read_text() == "allow:\n  - b.com\ndeny:\n  - a.com:22\n  - a.com\n"
    kept = keep(project, rule("a.com", private=True))
    assert [one.action for one in kept.replaced] == ["deny"]
    assert path.read_text() == "allow:\n  - b.com\ndeny:\n  - a.com:22\nprivate:\n  - a.com\n"


@pytest.mark.parametrize(
    "text",
    [
        "{allow: [a.com]}\n",
        "allow: ~\n",
        "allow: |\n  []\n",
        "allow:\n  - !!str a.com\n",
        "---\nallow: [a.com]\n...\n",
        "allow:\n  - a\n   .com\n",
        'allow: ["a.com",]\n',
        "allow:\n  - a.com\r\n  - b.com\r\n",
        "\ufeffallow:\n  - a.com\n",
        "allow:\n  - a.com",
        "allow: []",
        "allow:",
        "allow:   # nothing yet\n\n# the end",
        "? allow\n: - a.com\n",
        "allow: [\n  a.com,\n  b.com  # b\n]\n",
        "allow: # x\n  [a.com]\n",
        "",
        "\n\n",
        "# only words",
        "deny: []\n",
        "allow: [ ]\n",
        "allow:\n- a.com\n- |-\n  b.com\n",
    ],
)
def test_a_file_written_in_another_way_is_changed_rightly_or_left_alone(project: bytes, path: Path, text: str) -> None:
    write(path, text)
    try:
        before = [(one.action, show_rule(one)) for one in load(project)]
    except UsageError:
        before = None
    try:
        keep(project, rule("new.com"))
    except MudroomError as error:
        assert before is None or "cannot be changed by mudroom" in error.message
        assert path.read_text() == text
        return
    assert before is not None
    assert sorted((one.action, show_rule(one)) for one in load(project)) == sorted([*before, ("allow", "new.com")])
    drop(project, "new.com")
    assert [(one.action, show_rule(one)) for one in load(project)] == before


def test_a_writer_that_was_killed_leaves_nothing_behind(project: bytes, path: Path) -> None:
    write(path, "allow: [a.com]\n")
    write(path.with_name("permissions.yaml.new"), "deny: [half")
    keep(project, rule("b.com"))
    assert path.read_text() == 'allow: [a.com, "b.com"]\n'
    assert not path.with_name("permissions.yaml.new").exists()


def test_a_gitignore_of_the_users_own_stays(project: bytes, path: Path) -> None:
    write(path.with_name(".gitignore"), "lock\n")
    keep(project, rule("b.com"))
    assert path.with_name(".gitignore").read_text() == "lock\n"


def test_a_link_in_the_place_of_the_lock_is_not_followed(project: bytes, path: Path, tmp_path: Path) -> None:
    path.with_name("lock").symlink_to(tmp_path / "victim")
    with pytest.raises(UsageError, match="/local/lock is a symbolic link"):
        keep(project, rule("b.com"))
    assert not (tmp_path / "victim").exists()


def test_two_writers_take_turns(project: bytes, tmp_path: Path) -> None:
    program = (
        "import os, sys; from mudroom.policy.host_answers import keep;"
        "from mudroom.core.network.host_rules import parse_rule;"
        "[keep(os.fsencode(sys.argv[1]), parse_rule(f'{sys.argv[2]}{n}.example', 'allow')) for n in range(15)]"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name], env=ENVIRONMENT) for name in ("a", "b")
    ]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        seen.add(len(load(project)))  # a reader never meets half a file
    assert [writer.returncode for writer in writers] == [0, 0]
    assert len({one.pattern for one in load(project)}) == len(load(project)) == 30
    assert max(seen) <= 30


def test_a_waiting_writer_sees_what_the_first_has_written(project: bytes) -> None:
    program = (
        "import os, sys; from mudroom.policy.host_answers import keep;"
        "from mudroom.core.network.host_rules import parse_rule;"
        "rule = parse_rule('second.example', 'allow'); print('ready', flush=True); keep(os.fsencode(sys.argv[1]), rule)"
    )
    with LocalDirectory(project, write=True) as first:
        command = [sys.executable, "-c", program, os.fsdecode(project)]
        second = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE)
        assert second.stdout is not None
        assert second.stdout.readline() == b"ready\n"
        assert second.poll() is None
        first.replace(b"permissions.yaml", b"allow:\n  - first.example\n")
    second.communicate(timeout=60)
    assert second.returncode == 0
    assert [one.pattern for one in load(project)] == ["first.example", "second.example"]


_STRANGER = """
import fcntl, os, struct, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
if sys.argv[2] == "flock":
    fcntl.flock(descriptor, fcntl.LOCK_EX)
else:
    wanted = struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK if sys.argv[2] == "ofd" else fcntl.F_SETLK, wanted)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["flock", "posix", "ofd"])
def test_who_can_only_read_keeps_nobody_from_writing(project: bytes, path: Path, how: str) -> None:
    keep(project, rule("first.example"))
    command = [sys.executable, "-c", _STRANGER, str(path.with_name("lock")), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdin is not None and stranger.stdout is not None
        assert stranger.stdout.readline() == b"held\n"
        keep(project, rule("second.example", "deny"))
        assert stranger.poll() is None
        with LocalDirectory(project, write=True):
            pass
    assert [one.pattern for one in load(project)] == ["first.example", "second.example"]
    assert {one.name for one in path.parent.iterdir()} == {"lock", "permissions.yaml"}


def test_a_writer_that_never_ends_is_told(project: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mudroom.policy.local_directory.PATIENCE", 0.05)
    with (
        LocalDirectory(project, write=True),
        pytest.raises(UsageError, match="/local/lock is held by another process"),
        LocalDirectory(project, write=True),
    ):
        raise AssertionError("two at once")


def test_rules_as_they_stand_now(project: bytes, path: Path) -> None:
    read: list[int] = []

    def policy() -> tuple[HostRule, ...]:
        read.append(1)
        return own_settings(project).hosts

    standing = HostRules(project, policy, lambda: "asked today")
    assert standing() is standing()
    assert (standing(), len(read)) == ((), 1)
    standing.remember(rule("a.com")._replace(source="asked"))
    assert path.read_text().endswith("  - a.com  # asked today\n")
    first = standing()
    assert [one.pattern for one in first] == ["a.com"]
    assert standing() is first
    (path.parent.parent / "policy.yaml").write_text("network: {deny: [a.com], presets: [node]}\n")
    second = standing()
    assert [(one.action, one.pattern) for one in second] == [
        ("deny", "a.com"),
        ("allow", "nodejs.org"),
        ("allow", "a.com"),
    ]
    path.write_text(path.read_text())  # touched, and the same
    assert standing() is second
    assert len(read) == 4
    path.chmod(0o666)
    for _again in range(2):
        with pytest.raises(UsageError, match="can be written by others"):
            standing()
    path.chmod(0o600)
    assert standing() is second
    (path.parent.parent / "policy.yaml").write_text("network: {deny: [a.com")
    for _again in range(2):
        with pytest.raises(UsageError, match="this is not YAML"):
            standing()


@pytest.mark.parametrize(
    ("new", "section"),
    [
        (rule("a.com"), "allow"),
        (rule("127.0.0.1:3000"), "allow"),  # an address that is private is meant as it stands
        (rule("localhost:3000"), "allow"),  # as for an address
        (rule("devbox:3000", private=True), "private"),
        (rule("0.0.0.0/0", private=True), "private"),
        (rule("a.com", "deny"), "deny"),
        (rule("127.0.0.1", "ask"), "ask"),
    ],
)
def test_where_a_rule_stands(project: bytes, new: HostRule, section: str) -> None:
    assert section_of(new) == section
    keep(project, new)
    assert [one._replace(source="") for one in load(project)] == [new]


# --- one line of a file ---

TEXTS = st.sampled_from(
    ["a.com", "b.com:22", "*.c.com", "d.com:1,2", "10.0.0.0/8", "[2600::1]:22", "no", "localhost:1"]
)
ENTRY = st.tuples(
    TEXTS, st.sampled_from(["", "  # note", " #x: [y]"]), st.sampled_from(["", "# above\n", "\n", "  # in\n"])
)


@st.composite
def files(draw: st.DrawFn) -> str:
    parts = [draw(st.sampled_from(["", "# head\n", "\n"]))]
    for key in draw(st.permutations(["allow", "ask", "deny", "private"])):
        entries = draw(st.lists(ENTRY, max_size=3, unique_by=lambda entry: entry[0]))
        style = draw(st.sampled_from(["block", "flush", "flow", "none"]))
        if style == "none":
            continue
        if style == "flow" or not entries:
            words = ", ".join(f"'{text}'" for text, _note, _above in entries)
            parts.append(f"{key}: [{words}]\n")
        else:
            dash = "  - " if style == "block" else "- "
            parts.append(f"{key}:{draw(st.sampled_from(['', '  # why']))}\n")
            parts += [f'{above}{dash}"{text}"{note}\n' for text, note, above in entries]
    return "".join(parts)


@given(files(), TEXTS, st.sampled_from(["allow", "ask", "deny", "private"]))
@example('allow:\n- "a.com"', "no", "allow")
@hypothesis_settings(suppress_health_check=[HealthCheck.too_slow])
def test_putting_in_and_taking_out_give_back_the_file(text: str, new: str, section: str) -> None:
    data = text.encode()
    before = [show_rule(one) for one in parse(data, "f")]
    after = insert_text(data, "f", section, new, "note")
    rules = parse(after, "f")
    assert sorted(map(show_rule, rules)) == sorted([*before, show_rule(parse_rule(new, "deny"))])
    same = next((place for place, pair in enumerate(zip(data, after, strict=False)) if len(set(pair)) > 1), len(data))
    assert after.endswith(data[same:]), "one piece was put in, and nothing else is different"
    count = sum(1 for key, one in _rows(after) if key == section)
    back = remove_text(after, "f", section, count - 1)
    assert [show_rule(one) for one in parse(back, "f")] == before


def _rows(data: bytes) -> list[tuple[str, HostRule]]:
    from mudroom.policy.host_answers import _rows

    return _rows(data, "f")


def test_there_is_nothing_to_take_out() -> None:
    for text, number in (("", 0), ("allow: [a.com]\n", 1), ("deny: [a.com]\n", 0), ("allow:\n", 0)):
        with pytest.raises(CannotEdit):
            remove_text(text.encode(), "f", "allow", number)


@pytest.mark.parametrize("host", ["a.com", "2600::1", "45.45.45.45"])
@pytest.mark.parametrize("action", ["allow", "deny"])
def test_an_answer_is_kept_and_holds(project: bytes, host: str, action: Action) -> None:
    """As whoever asks makes it: the host and the port that were asked about, and no more."""
    standing = HostRules(project, tuple)
    standing.remember(HostRule(action, host, (8443,), source="asked"))
    assert decide(Request(host, 8443), standing()).action == action
    assert decide(Request(host, 443), standing()).rule is None

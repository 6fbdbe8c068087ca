"""Settings and places: whatever is wrong is one clean line that names file, line and key."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from mudroom.core.agent.sandbox_level import REFUSE, LevelPolicy
from mudroom.core.command.policy import ClassRule, CommandPolicy, CommandRule, Role
from mudroom.core.confinement.limit import OFF, Limits
from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.policy.config import Places, load_settings, parse_settings, places
from mudroom.policy.setting_type import seconds, shown, size
from mudroom.policy.settings_table import SECTIONS


@pytest.fixture(autouse=True, params=["CSafeLoader", "SafeLoader"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PyYAML is built with and without libyaml, and the two fail in different ways."""
    if request.param == "SafeLoader":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("this PyYAML is built without libyaml")
    yield


def parse(text: str) -> Settings:
    return parse_settings(text.encode(), "policy.yaml")


def refusal(data: str | bytes) -> str:
    with pytest.raises(UsageError) as caught:
        parse_settings(data.encode() if isinstance(data, str) else data, "policy.yaml")
    assert str(caught.value).isprintable()
    return str(caught.value)


# --- what is read -------------------------------------------------------------------------------------------------


def test_everything_that_can_be_set() -> None:
    text = """
    run:
      level: 0
      network: open
      view: copy
      timeout: 5m
      environment: [TOKEN, "NAME=a=b", "caf\u00e9=\u00fc"]
      read: [/usr/share, /opt//data/../data]
      output_limit: 64KiB
    copy:
      limit: 2GB
      exclude: [node_modules, /build/out/, "!*.keep"]
      gitignore: true
    limits:
      memory: 512 MB
      processes: 100
      cpus: 1.5
      io: 10MB
      open_files: 256
      file_size: 1GiB
      total_memory: 2G
      total_processes: 400
      total_cpus: 3
      missing: degrade
      tmp: 100MB
      inotify: none
      inotify_watches: 9000
    levels:
      default: 1
      minimum: 0
      allow: [0, 1]
      agents:
        claude-code: 1
        "team:x/y": refuse
    keep:
      age: 14d
      applies: 7
      bytes: 1GB
    """
    assert parse(text) == Settings(
        level=0,
        levels=LevelPolicy(1, 0, (0, 1), (("claude-code", 1), ("team:x/y", REFUSE))),
        keep_age=14 * 86400.0,
        keep_applies=7,
        keep_bytes=10**9,
        network="open",
        view="copy",
        timeout=300.0,
        environment=(b"TOKEN", b"NAME=a=b", "caf\u00e9=\u00fc".encode()),
        read=(b"/usr/share", os.path.realpath(b"/opt/data")),
        output_limit=65536,
        copy_limit=2_000_000_000,
        copy_exclude=(b"node_modules", b"/build/out/", b"!*.keep"),
        copy_gitignore=True,
        limits=Limits(512 * 10**6, 100, 1.5, 10**7, 256, 1 << 30, 2 << 30, 400, 3, "degrade", 10**8, OFF, 9000),
    )


def test_the_rules_of_the_network() -> None:
    text = """
    network:
      mode: gate
      allow:
        - Example.COM.
        - "*.example.org:22,443"
      deny: [gist.example.com]
      ask: ["*"]
      private:
        - db.corp.example:5432
        - 10.1.0.0/16
      presets: [npm]
    """
    assert parse(text) == Settings(
        network="gate",
        hosts=(
            HostRule("allow", "example.com", source="policy.yaml:5"),
            HostRule("allow", "*.example.org", (22, 443), source="policy.yaml:6"),
            HostRule("deny", "gist.example.com", source="policy.yaml:7"),
            HostRule("ask", "*", source="policy.yaml:8"),
            HostRule("allow", "db.corp.example", (5432,), private=True, source="policy.yaml:10"),
            HostRule("allow", "10.1.0.0/16", private=True, source="policy.yaml:11"),
            *(
                HostRule("allow", host, source="policy.yaml:12 @npm")
                for host in ("registry.npmjs.org", "registry.yarnpkg.com", "nodejs.org")
            ),
        ),
    )


@pytest.mark.parametrize("mode", ["none", "gate", "open"])
@pytest.mark.parametrize("text", ["network: {{mode: {}}}", "run: {{network: {}}}"])
def test_modes_of_the_network(mode: str, text: str) -> None:
    assert parse(text.format(mode)) == Settings()._replace(network=mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["*.example.com", "*", "**.example.com", "*:22"])
def test_a_star_without_quotes_is_explained(host: str) -> None:
    said = refusal(f"network:\n  allow:\n  - {host}\n")
    assert said.startswith("policy.yaml:3: this is not YAML: ")
    assert said.endswith('(to YAML a * is a reference; put the text in quotes: "*.example.com")')


@pytest.mark.parametrize("data", [b"", b"# only a comment\n", b"\xef\xbb\xbf", b"run: {}", b"---\ncopy: {}\n"])
def test_nothing_set(data: bytes) -> None:
    assert parse_settings(data, "policy.yaml") == Settings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run: {network: 'none'}", Settings(network="none")),
        ("run: {timeout: 1.5}", Settings(timeout=1.5)),
        ("run: {timeout: '90'}", Settings(timeout=90.0)),
        ("run: {output_limit: 0}", Settings(output_limit=0)),
        ("run: {environment: []}", Settings()),
        ("base: &b\nrun: {}", None),
        ("run: {environment: [&a X, Y]}", Settings(environment=(b"X", b"Y"))),
        ('run: {environment: ["A=\\x07\\u00e9"]}', Settings(environment=(b"A=\x07\xc3\xa9",))),
    ],
)
def test_values(text: str, expected: Settings | None) -> None:
    if expected is None:
        refusal(text)
    else:
        assert parse(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (0.25, 0.25),
        ("90s", 90.0),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("2d", 172800.0),
        (" 2 m ", 120.0),
        ("1e3", 1000.0),
    ],
)
def test_times(value: object, expected: float) -> None:
    assert seconds(value, "run.timeout") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (1024, 1024),
        ("10kb", 10_000),
        ("10 KiB", 10_240),
        ("1.5MB", 1_500_000),
        ("2GiB", 2 << 30),
        ("3gb", 3 * 10**9),
        (2**62, 2**62),
    ],
)
def test_sizes(value: object, expected: int) -> None:
    assert size(value, "copy.limit") == expected


NOT_ONE = ["", True, None, [], "nan", "inf", "1e999"]
BAD_TIMES = [*NOT_ONE, 0, -1, "0s", "-5m", "soon", "m", "5y", "-inf", 10**400, "1 2"]
BAD_SIZES = [*NOT_ONE, -1, "-1MB", "much", "MB", "1PB", 1e300, 2**63, "1e12GB", "1,5MB"]


@pytest.mark.parametrize(("convert", "bad"), [(seconds, BAD_TIMES), (size, BAD_SIZES)], ids=["times", "sizes"])
def test_what_is_no_time_and_no_size(convert: Callable[[object, str], object], bad: list[object]) -> None:
    for value in bad:
        with pytest.raises(UsageError, match=re.escape(f"here is {shown(value)}, which is not a ")):
            convert(value, "here")


# --- what is wrong ------------------------------------------------------------------------------------------------

KNOWN = (
    "agents, caches, commands, container, copy, credentials, include, keep, levels, limits, mcp, network, roles, run, "
    "secrets, user_commands, verify)"
)
IMAGE_HINT = "write host, or a name as debian:bookworm"
NEITHER = "is neither a name nor an address in its usual form: names do not end in a number"
PORTS = "(1 to 65535); write HOST:22 or HOST:80,443"
METADATA = "the metadata service of a cloud: no rule opens that"
RULE = "({pattern: git push --force, action: deny})"
ACTION = "(allowed: allow, allow_with_checkpoint, require_approval, deny)"
OTHERS = ("action", "exact", "instead", "match", "not_match", "pattern", "reason")
WORD = 'a word is a text, or a list of texts (numbers and yes and no in quotes: "1")'
WRONG = [
    ("run:\n  networks: open\n", 2, "there is no setting run.networks (did you mean run.network?)"),
    ("run:\n  network: open\n  time_out: 3\n", 3, "there is no setting run.time_out (did you mean run.timeout?)"),
    ("runn: {}", 1, "there is no setting runn (did you mean run?)"),
    ("copy: {limits: 3}", 1, "there is no setting copy.limits (did you mean copy.limit?)"),
    (
        "\nqqqq:\n  none",
        2,
        "there is no setting qqqq (known: " + KNOWN,
    ),
    ("limits: {memroy: 1GB}", 1, "there is no setting limits.memroy (did you mean limits.memory?)"),
    ("limits: {memory: 10}", 1, "limits.memory is 10 (at least 4 MiB: with less, nothing can run)"),
    ("limits: {processes: many}", 1, "limits.processes is 'many', which is not a number from 1 on"),
    ("limits: {cpus: 0}", 1, "limits.cpus is 0, which is not a number of processors (write 0.5, 1, 2 \u2026)"),
    ("limits: {missing: ignore}", 1, "limits.missing is 'ignore' (allowed: refuse, degrade)"),
    ("keep: {applies: 0}", 1, "keep.applies is 0, which is not a number from 1 on"),
    ("copy: {qqqq: 3}", 1, "there is no setting copy.qqqq (known: copy.exclude, copy.gitignore, copy.limit)"),
    (
        '"\\e[31m\\u202e": 1',
        1,
        r"there is no setting \x1b[31m\u202e (known: " + KNOWN,
    ),
    (
        "<<: {run: {network: open}}",
        1,
        "there is no setting << (known: " + KNOWN,
    ),
    ("run:\n  view: copy\n  network: none\n  view: copy\n", 4, "run.view is given twice"),
    ("run: {}\ncopy: {}\nrun: {}\n", 3, "run is given twice"),
    ("run: {? [a] : 1}", 1, "a key must be a plain text"),
    ("- run", 1, "the file must hold keys with values"),
    ("just words", 1, "the file must hold keys with values"),
    ("run: open", 1, "run must hold keys with values"),
    ("copy: {}\nrun:\n", 2, "run must hold keys with values"),
    ("run: {network: on}", 1, "run.network is True (allowed: none, gate, open)"),
    ("run: {network: [open]}", 1, "run.network is ['open'] (allowed: none, gate, open)"),
    ("run: {view: Overlay}", 1, "run.view is 'Overlay' (allowed: auto, overlay, copy)"),
    ('run: {view: "a\\nb"}', 1, r"run.view is 'a\nb' (allowed: auto, overlay, copy)"),
    ("run: {view: {copy: 1}}", 1, "run.view must be one value, or a list of texts"),
    ("run: {timeout: -1}", 1, "run.timeout is -1, which is not a time (write seconds, or 90s, 5m, 1h)"),
    ("run:\n  output_limit: -1\n", 2, "run.output_limit is -1, which is not a size (write bytes, or 500MB, 2GB)"),
    ("run: {timeout: }", 1, "run.timeout is None, which is not a time (write seconds, or 90s, 5m, 1h)"),
    ("run: {environment: TOKEN}", 1, "run.environment must be a list of texts"),
    ("run: {environment: [TOKEN, 1]}", 1, "run.environment must be a list of texts"),
    ("run: {environment: [[TOKEN]]}", 1, "run.environment must be one value, or a list of texts"),
    ("run: {environment: [=x]}", 1, "run.environment: '=x' is neither NAME nor NAME=VALUE"),
    ("run: {environment: ['']}", 1, "run.environment: '' is neither NAME nor NAME=VALUE"),
    ('run: {environment: ["A=\\0"]}', 1, "run.environment holds a NUL character"),
    ('run: {read: ["/a\\0"]}', 1, "run.read holds a NUL character"),
    ("run:\n  read:\n  - /usr\n  - ~/.cargo\n", 2, "run.read: ~/.cargo is not an absolute path"),
    ("run: {read: [/]}", 1, "run.read: / is the whole file system (name what is needed of it)"),
    ("run: {read: [/usr/..]}", 1, "run.read: /usr/.. is the whole file system (name what is needed of it)"),
    ("copy: {exclude: [../x]}", 1, "copy.exclude: ../x holds '.' or '..' (write it from the project on)"),
    ("copy: {exclude: [a/./x]}", 1, "copy.exclude: a/./x holds '.' or '..' (write it from the project on)"),
    ("copy: {exclude: ['']}", 1, "copy.exclude: '' names nothing"),
    ("copy: {exclude: ['! ']}", 1, "copy.exclude: '! ' names nothing"),
    ("copy: {exclude: ['/']}", 1, "copy.exclude: '/' names nothing"),
    ("copy: {exclude: ['#x']}", 1, "copy.exclude: '#x' names nothing"),
    ("network: open", 1, "network must hold keys with values"),
    ("network: {mode: closed}", 1, "network.mode is 'closed' (allowed: none, gate, open)"),
    ("network: {alow: [a.com]}", 1, "there is no setting network.alow (did you mean network.allow?)"),
    ("network: {allow: a.com}", 1, "network.allow must be a list of texts (one a line, behind '- ')"),
    ("network: {allow: [1.5]}", 1, "network.allow must be a list of texts (one a line, behind '- ')"),
    ("network: {allow: [[a.com]]}", 1, "network.allow must be one value, or a list of texts"),
    ("network:\n  allow:\n  - a.com\n  - 127.0.1\n", 4, "network.allow: 127.0.1 " + NEITHER),
    ("network:\n  deny:\n  - https://a.com/x\n", 3, "network.deny: this is a URL; write the host alone: a.com"),
    ("network:\n  ask: [a.com:http]\n", 2, f"network.ask: a.com:http: http is no port {PORTS}"),
    ("network:\n  private: [169.254.169.254]", 2, "network.private: 169.254.169.254 is " + METADATA),
    ("network:\n  presets:\n  - nmp\n", 3, "network.presets: there is no preset nmp (did you mean npm?)"),
    (
        "run: {network: open}\nnetwork:\n  mode: gate\n",
        3,
        "network.mode: policy.yaml:1: run.network says it already (keep network.mode)",
    ),
    ("copy: {gitignore: 1}", 1, "copy.gitignore is 1 (allowed: true, false)"),
    ("commands: {rulez: []}", 1, "there is no setting commands.rulez (did you mean commands.rules?)"),
    ("commands: {rules: {}}", 1, "commands.rules must be a list (one rule a line, behind '- ')"),
    ("commands:\n  rules:\n  - x\n", 3, "commands.rules: a rule has keys with values ({pattern: …, action: …})"),
    ("commands: {rules: [{action: deny}]}", 1, f"commands.rules: a rule without pattern {RULE}"),
    ("commands: {rules: [{pattern: x}]}", 1, f"commands.rules: a rule without action {RULE}"),
    (
        "commands: {rules: [{patern: x}]}",
        1,
        "there is no key commands.rules.patern (did you mean commands.rules.pattern?)",
    ),
    ("commands: {rules: [{pattern: x, action: ask}]}", 1, f"commands.rules.action is 'ask' {ACTION}"),
    (
        "commands: {rules: [{pattern: 'a; b', action: deny}]}",
        1,
        "commands.rules.pattern: a; b: ';' separates commands; a pattern names one command",
    ),
    (
        "commands: {rules: [{pattern: 1, action: deny}]}",
        1,
        "commands.rules.pattern is 1 (write the first words of a command: git push --force)",
    ),
    ("commands: {rules: [{pattern: [], action: deny}]}", 1, "commands.rules.pattern: a pattern has 1 to 64 words"),
    ("commands: {rules: [{pattern: [npm, 1], action: deny}]}", 1, f"commands.rules.pattern: {WORD}"),
    ("commands: {rules: [{pattern: [npm, []], action: deny}]}", 1, f"commands.rules.pattern: {WORD}"),
    (
        "commands: {rules: [{pattern: a, action: deny, exact: 1}]}",
        1,
        "commands.rules.exact is 1 (allowed: true, false)",
    ),
    (
        "commands: {rules: [{pattern: a, action: deny, reason: ''}]}",
        1,
        "commands.rules.reason must be a text of one line",
    ),
    ("commands: {rules: [{pattern: a, pattern: b}]}", 1, "commands.rules.pattern is given twice"),
    (
        "commands: {rules: [{pattern: a, action: deny,\n agents: [reviewr]}]}\nroles: {reviewer: {}}",
        1,
        "there is no role or agent reviewr (did you mean reviewer?)",
    ),
    (
        "commands: {classes: {destructiv: deny}}",
        1,
        "there is no class of commands commands.classes.destructiv (did you mean commands.classes.destructive?)",
    ),
    ("commands: {classes: {unknown: yes}}", 1, f"commands.classes.unknown is True {ACTION}"),
    (
        "commands: {background: allow_with_checkpoint}",
        1,
        "commands.background is 'allow_with_checkpoint' (allowed: allow, require_approval, deny)",
    ),
    ("agents: {claude: reviewr}\nroles:\n  reviewer: {}", 1, "there is no role reviewr (did you mean reviewer?)"),
    ("agents: {claude: [x]}", 1, "agents.claude is ['x'] (write the name of a role)"),
    ("roles: {a: {rule: []}}", 1, "there is no setting roles.a.rule (did you mean roles.a.rules?)"),
    (
        "roles: {a: {rules: [{pattern: x, action: deny, agents: [a]}]}}",
        1,
        "there is no key roles.a.rules.agents (known: " + ", ".join(f"roles.a.rules.{one}" for one in OTHERS) + ")",
    ),
    (
        "user_commands: {sandbox: 3}",
        1,
        "user_commands.sandbox is 3, which is no level (0: staged view only; 1: OS sandbox; 2: container)",
    ),
    ("container: {engine: lxc}", 1, "container.engine is 'lxc' (allowed: auto, docker, podman, container)"),
    ("container: {image: -v}", 1, f"container.image: '-v' is not the name of an image ({IMAGE_HINT})"),
    ("container: {image: 'a b'}", 1, f"container.image: 'a b' is not the name of an image ({IMAGE_HINT})"),
    ("container: {image: ''}", 1, f"container.image: is empty ({IMAGE_HINT})"),
    ("container: {image: [a]}", 1, f"container.image: ['a'] is not the name of an image ({IMAGE_HINT})"),
    ("container: {warm: 9}", 1, "container.warm is 9, and at most 8 containers are kept ready"),
    ("container: {warm: -1}", 1, "container.warm is -1, which is not a number from 0 on"),
    ("container: {cards: x}", 1, "container.cards must be a list of texts"),
    ("user_commands: {auto_apply: yes}", 1, "user_commands.auto_apply is True (allowed: never, trusted, always)"),
    (
        "user_commands: {trusted: ['a*']}",
        1,
        "user_commands.trusted: a*: a shell would do something about '*': put it in quotes if it is meant; "
        "a pattern is a prefix, so leave it out",
    ),
    (
        "user_commands: {show_diff_threshold: -1}",
        1,
        "user_commands.show_diff_threshold is -1, which is not a number from 0 on",
    ),
]


@pytest.mark.parametrize(("text", "line", "message"), WRONG)
def test_a_wrong_setting_is_named(text: str, line: int, message: str) -> None:
    where = f"policy.yaml:{line}: "
    assert refusal(text) == where + message


TAGGED = ["!!int x", "!!float x", "!!bool x", "!!timestamp x", "!!python/object:os.system x"]


@pytest.mark.parametrize("value", [*TAGGED, "2024-13-45"])
def test_a_value_that_cannot_be_made_of_its_text(value: str) -> None:
    message = "policy.yaml:2: run.timeout cannot be read as what it is tagged or looks like"
    assert refusal(f"run:\n  timeout: {value}\n") == message


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"run: [\n", 2),
        (b"run:\n\tview: copy\n", 2),
        (b"run: {}\nrun: x: y\n", 2),
        (b"run: {}\n---\ncopy: {}\n", 2),
        (b"%YAML 3.0\n---\nrun: {}\n", 1),
        (b"run: {}\n\x07", 2),
        (b"run: \0", 1),
    ],
)
def test_what_is_not_yaml(data: bytes, line: int) -> None:
    assert refusal(data).startswith(f"policy.yaml:{line}: this is not YAML: ")


@pytest.mark.parametrize(
    ("data", "line"), [(b"\xff", 1), (b"run:\n  view: caf\xe9\n", 2), (b"\xff\xfer\0u\0", 1), (b"run: \xed\xa0\x80", 1)]
)
def test_what_is_not_utf8(data: bytes, line: int) -> None:
    assert refusal(data) == f"policy.yaml:{line}: this is not UTF-8"


@pytest.mark.parametrize("data", [b"[" * 100_000, b"{a: " * 100_000, b"- " * 100_000, b"run: {view: " + b"[" * 20])
def test_what_is_nested_too_deeply_does_not_reach_the_loader(data: bytes) -> None:
    assert refusal(data) == "policy.yaml:1: nested too deeply"


DIGITS = "9" * 4000
NUMBERS = (
    f"0x{'F' * 4000}",
    DIGITS,
    f"'{DIGITS}'",
    f"'{'9' * 400}'",
    f"[{DIGITS}]",
    f"{DIGITS}.5",
    f"-{'1' * 101}",
    "9" * 90,
    "1:" * 200 + "1.5",
    "1:" * 45 + "1.5",
    "1:" * 100_000 + "1",
    "1e300",
    "1e400",
    ".inf",
    f"!!int '{DIGITS}'",
    f"!!float '{'1:' * 4000}1'",
)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:12])
@pytest.mark.parametrize(
    "key",
    [
        "run.timeout",
        "run.level",
        "run.output_limit",
        "limits.processes",
        "limits.memory",
        "limits.cpus",
        "limits.open_files",
        "keep.age",
        "keep.applies",
        "keep.journal",
        "keep.journal_age",
        "verify.timeout",
        "commands.approval_timeout",
        "levels.default",
        "levels.allow",
        "user_commands.show_diff_threshold",
        "copy.gitignore",
        "run.view",
    ],
)
def test_what_no_number_may_be(key: str, number: str) -> None:
    section, _dot, name = key.partition(".")
    message = refusal(f"{section}:\n  {name}: {number}\n")
    assert message.startswith("policy.yaml:2: " + key)
    assert len(message) < 300


def test_what_no_level_of_an_agent_may_be() -> None:
    for number in NUMBERS:
        assert refusal(f"levels: {{agents: {{a: {number}}}}}").startswith("policy.yaml:1: levels.agents.a")


def test_a_hundred_years_are_the_longest_time() -> None:
    assert parse_settings(b"keep: {age: 36600d}", "p").keep_age == 36600 * 86400
    for text in ("36601d", "1e300", "'4e9'"):
        assert "at most a hundred years: 36600d" in refusal(f"keep: {{age: {text}}}")
    for text in ("-1", "0", "'-1e400'", "'1e400'", ".inf", ".nan", "-.inf"):
        assert "which is not a time" in refusal(f"keep: {{age: {text}}}")


def test_references_are_refused() -> None:
    doubling = "".join(f"  - &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 40))
    for text in ("run: *nowhere", "run: {view: &a [*a]}", f"run: {{}}\ncopy:\n  exclude:\n  - &a0 x\n{doubling}"):
        assert ": references are not read: *" in refusal(text)


PIECES = b"""
run copy network allow presets npm a.com
view timeout environment read limit exclude : - [ ] { } , & * ! !!int !!set !!binary | > ' " # % @
\\0 \\ud800 <<: ? --- ... ~ true 1 -1 1e999 0x1 1:30 .inf 2001-01-01 /a ../b =
""".split()


@given(st.binary(max_size=40) | st.lists(st.sampled_from([*PIECES, b"\n", b"\t"]), max_size=15).map(b" ".join))
@example(b"run: {timeout: !!set {a}}")
@example(b"run: !!python/object:x {view: copy}")
@example(b'run: {environment: ["\\ud800"]}')
def test_nothing_but_a_clean_error_comes_of_any_bytes(data: bytes) -> None:
    try:
        parse_settings(data, "policy.yaml")
    except UsageError as error:
        assert re.match(r"policy\.yaml:[0-9]+: ", error.message)
        assert str(error).isprintable()


# --- the file -----------------------------------------------------------------------------------------------------


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    (tmp_path / ".mudroom").mkdir()
    return tmp_path / ".mudroom/policy.yaml"


def test_a_policy_file(policy: Path) -> None:
    policy.write_text("run: {view: copy}")
    assert load_settings(os.fsencode(policy.parent.parent)) == Settings(view="copy")


def test_an_error_names_the_file(policy: Path) -> None:
    policy.write_text("run: {view: none}")
    with pytest.raises(UsageError) as caught:
        load_settings(os.fsencode(policy.parent.parent))
    assert str(caught.value) == f"{policy}:1: run.view is 'none' (allowed: auto, overlay, copy)"


def test_without_a_policy_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load_settings(os.fsencode(tmp_path)) == Settings()
    (tmp_path / ".mudroom").write_text("not a directory")
    assert load_settings(os.fsencode(tmp_path)) == Settings()


def test_a_policy_that_cannot_be_read_is_not_ignored(policy: Path) -> None:
    policy.mkdir()
    with pytest.raises(UsageError) as caught:
        load_settings(os.fsencode(policy.parent.parent))
    assert str(caught.value) == f"{policy}: Is a directory"


# --- places -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "state"),
    [
        ({}, b"/home/u/.local/state/mudroom"),
        ({b"XDG_STATE_HOME": b"/var/state"}, b"/var/state/mudroom"),
        ({b"XDG_STATE_HOME": b""}, b"/home/u/.local/state/mudroom"),
        ({b"XDG_STATE_HOME": b"relative"}, b"/home/u/.local/state/mudroom"),
        ({b"XDG_STATE_HOME": b"/var/state", b"MUDROOM_STATE": b"/own//state/"}, b"/own/state"),
        ({b"MUDROOM_STATE": b""}, b"/home/u/.local/state/mudroom"),
    ],
)
def test_places(environ: dict[bytes, bytes], state: bytes) -> None:
    assert places({b"HOME": b"/home/u/", **environ}) == Places(b"/home/u", state)


def test_the_home_is_a_real_path(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to("home")
    assert places({b"HOME": os.fsencode(tmp_path / "link")}).home == os.fsencode(tmp_path / "home")


@pytest.mark.parametrize(
    ("home", "message"),
    [
        (b"relative\n", r"HOME is not an absolute path: relative\n"),
        (b"/", "the home directory is /, which no sandbox can make private (set HOME to another directory)"),
    ],
)
def test_a_home_that_cannot_be(home: bytes, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        places({b"HOME": home})
    assert str(caught.value) == message


def test_without_home_the_password_database_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = pwd.struct_passwd(("u", "x", 1000, 1000, "", "/home/from/passwd", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: entry)
    assert places({}).home == b"/home/from/passwd"
    assert places({b"HOME": b""}).home == b"/home/from/passwd"


def test_a_user_without_home_and_entry_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", missing)
    with pytest.raises(UsageError, match=r"HOME is not set, and user [0-9]+ has no entry in /etc/passwd"):
        places({})


def test_every_field_of_the_settings_can_be_set() -> None:
    fields = sorted(setting.field for section in SECTIONS.values() for setting in section.values())
    inner = [f"limits.{name}" for name in Limits._fields] + [f"levels.{name}" for name in LevelPolicy._fields]
    # run.network, network.mode; allow, ask, deny, private, presets, inspect; classes, rules
    twice = ["network", *["hosts"] * 5, "commands"]
    outer = [name for name in Settings._fields if name not in ("limits", "levels")]
    assert fields == sorted([*inner, *outer, *twice])


def test_what_is_done_about_commands() -> None:
    text = """
commands:
  classes: {destructive: require_approval}
  rules:
    - pattern: git push --force
      action: deny
      reason: what others have stays
      instead: git push
      agents: [reviewer, codex]
    - {pattern: [npm, [ci, install]], action: allow, exact: true}
  background: deny
  approval_timeout: 1m
roles:
  reviewer:
    classes: {mutating: deny}
    rules: [{pattern: make, action: deny}]
agents: {claude-code: reviewer, codex: reviewer}
user_commands:
  sandbox: 1
  auto_apply: trusted
  auto_apply_trusted: true
  auto_apply_flagged: false
  trusted: [npm ci]
  show_diff_threshold: 0
"""
    commands = CommandPolicy(
        (ClassRule("destructive", "require_approval", "policy.yaml:3", 1),),
        (
            CommandRule(
                ((b"git",), (b"push",), (b"--force",)),
                "deny",
                "policy.yaml:5",
                "what others have stays",
                "git push",
                ("reviewer", "codex"),
            ),
            CommandRule(((b"npm",), (b"ci", b"install")), "allow", "policy.yaml:10", exact=True),
            CommandRule(((b"make",),), "deny", "policy.yaml:16", agents=("reviewer",)),
        ),
        (Role("reviewer", (ClassRule("mutating", "deny", "policy.yaml:15", 1),), "policy.yaml:14"),),
        (("claude-code", "reviewer"), ("codex", "reviewer")),
    )
    assert parse(text) == Settings(
        commands=commands,
        background="deny",
        approval_timeout=60.0,
        user_level=1,
        auto_apply="trusted",
        auto_apply_trusted=True,
        trusted=(((b"npm",), (b"ci",)),),
    )


def test_inspect_rules() -> None:
    text = """
network:
  inspect:
    - api.example
    - host: up.example:8443
      action: ask
      methods: [get, HEAD]
      paths: [/a, /b/]
      private: true
      set: {X-From: ci}
      remove: [Cookie]
      only: true
      foreign: strip
  never_inspect: ["*.bank.example"]
"""
    settings = parse_settings(text.encode(), "policy.yaml")
    plain, full = settings.hosts
    assert (plain.pattern, plain.action, plain.inspect, plain.source) == ("api.example", "allow", True, "policy.yaml:4")
    assert full._asdict() == {
        "action": "ask",
        "pattern": "up.example",
        "ports": (8443,),
        "methods": ("GET", "HEAD"),
        "paths": ("/a", "/b/"),
        "private": True,
        "inspect": True,
        "source": "policy.yaml:5",
        "set_headers": (("x-from", "ci"),),
        "remove_headers": ("cookie",),
        "only": True,
        "foreign": "strip",
    }
    assert [rule.pattern for rule in settings.never_inspect] == ["*.bank.example"]


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("{methods: [GET]}", "host is missing"),
        ("{host: a.example, method: [GET]}", "did you mean network.inspect.methods"),
        ("{host: a.example, methods: GET}", "methods must be a list"),
        ("{host: a.example, paths: [a]}", "a is no path"),
        ("{host: a.example, action: maybe}", "allow, ask or deny"),
        ("{host: a.example, set: {host: b}}", "is not a header that a rule can change"),
        ("{host: 'https://a.example/'}", "this is a URL"),
        ("[a.example]", "a host, or keys with values"),
    ],
)
def test_inspect_rules_that_are_wrong(rule: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_settings(f"network:\n  inspect:\n    - {rule}\n".encode(), "policy.yaml")
    assert "policy.yaml:3" in str(caught.value)
    assert why in f"{caught.value} {caught.value.hint}"

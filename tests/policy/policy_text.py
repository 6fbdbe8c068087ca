"""Texts of policies, read by both loaders of YAML, and the texts that are wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from mudroom.errors import UsageError
from mudroom.policy.config import parse_settings


@pytest.fixture(autouse=True, params=["CSafeLoader", "SafeLoader"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PyYAML is built with and without libyaml, and the two fail in different ways."""
    if request.param == "SafeLoader":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("this PyYAML is built without libyaml")
    yield


def refusal(data: str | bytes) -> str:
    with pytest.raises(UsageError) as caught:
        parse_settings(data.encode() if isinstance(data, str) else data, "policy.yaml")
    assert str(caught.value).isprintable()
    return str(caught.value)


KNOWN = (
    "agents, caches, commands, container, copy, credentials, git, include, keep, levels, limits, mcp, merge, network, "
    "roles, run, secrets, start, user_commands, verify)"
)
_PATTERN = "(a name, *.log, or a path from the project on: /build/)"
IMAGE_HINT = "write host, or a name as debian:bookworm"
NEITHER = "is neither a name nor an address in its usual form: names do not end in a number"
PORTS = "(1 to 65535); write HOST:22 or HOST:80,443"
METADATA = "the metadata service of a cloud: no rule opens that"
RULE = "({pattern: git push --force, action: deny})"
ACTION = "(allowed: allow, allow_with_checkpoint, require_approval, deny)"
OTHERS = ("action", "exact", "instead", "match", "not_match", "pattern", "reason")
WORD = 'a word is a text, or a list of texts (numbers and yes and no in quotes: "1")'
WRONG = [
    ("start: {commands: make}", 1, "start.commands must be a list of commands ([{run: make serve, ready: 8000}])"),
    (
        "start:\n  commands:\n  - {ready: 80}",
        2,
        "start.commands, command 1 must have run, and may have ready ({run: make serve, ready: 8000})",
    ),
    (
        "start: {commands: [make, {run: a, ready: 0}]}",
        1,
        "start.commands, command 2, ready is 0, which is not a port (from 1 to 65535, or a command)",
    ),
    (
        "start: {commands: [[]]}",
        1,
        'start.commands, command 1 is empty (write a command: "make test", or [make, test])',
    ),
    ("run:\n  networks: open\n", 2, "there is no setting run.networks (did you mean run.network?)"),
    ("run:\n  network: open\n  time_out: 3\n", 3, "there is no setting run.time_out (did you mean run.timeout?)"),
    ("runn: {}", 1, "there is no setting runn (did you mean run?)"),
    ("copy: {limits: 3}", 1, "there is no setting copy.limits (did you mean copy.limit?)"),
    ("\nqqqq:\n  none", 2, "there is no setting qqqq (known: " + KNOWN),
    ("limits: {memroy: 1GB}", 1, "there is no setting limits.memroy (did you mean limits.memory?)"),
    ("limits: {memory: 10}", 1, "limits.memory is 10 (at least 4 MiB: with less, nothing can run)"),
    ("limits: {processes: many}", 1, "limits.processes is 'many', which is not a number from 1 on"),
    ("limits: {cpus: 0}", 1, "limits.cpus is 0, which is not a number of processors (write 0.5, 1, 2 \u2026)"),
    ("limits: {missing: ignore}", 1, "limits.missing is 'ignore' (allowed: refuse, degrade)"),
    ("keep: {applies: 0}", 1, "keep.applies is 0, which is not a number from 1 on"),
    ("copy: {qqqq: 3}", 1, "there is no setting copy.qqqq (known: copy.exclude, copy.gitignore, copy.limit)"),
    ('"\\e[31m\\u202e": 1', 1, r"there is no setting \x1b[31m\u{202e} (known: " + KNOWN),
    ("<<: {run: {network: open}}", 1, "there is no setting << (known: " + KNOWN),
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
    ("copy: {exclude: [../x]}", 1, f"copy.exclude: '../x' holds an empty part, '.' or '..' {_PATTERN}"),
    ("copy: {exclude: [a/./x]}", 1, f"copy.exclude: 'a/./x' holds an empty part, '.' or '..' {_PATTERN}"),
    ("secrets: {mask: ['[z-a]']}", 1, f"secrets.mask: '[z-a]' is not a pattern of gitignore(5) {_PATTERN}"),
    ("secrets: {mask: ['!a']}", 1, "secrets.mask: !a: no pattern here takes files away (name those that are meant)"),
    (
        "levels: {agents: {'[z-a]': 1}}",
        1,
        "levels.agents.[z-a]: [z-a] is not a pattern of gitignore(5) (an agent's name, or a pattern: some-*)",
    ),
    ("agents: {'some-*': free}", 1, "agents.some-* is no name of an agent (give each agent its role by name)"),
    ("network: {cards: ['some-*']}", 1, "network.cards: 'some-*' is no name of an agent (name each agent)"),
    ("copy: {exclude: ['']}", 1, f"copy.exclude: '' names nothing {_PATTERN}"),
    ("copy: {exclude: ['! ']}", 1, f"copy.exclude: '! ' names nothing {_PATTERN}"),
    ("copy: {exclude: ['/']}", 1, f"copy.exclude: '/' names nothing {_PATTERN}"),
    ("copy: {exclude: ['#x']}", 1, f"copy.exclude: '#x' names nothing {_PATTERN}"),
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

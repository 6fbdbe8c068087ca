"""Seatbelt profiles: their decisions, evaluated by ``sbpl`` (no Mac is needed), and their text."""

from __future__ import annotations

import functools
import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from macbox import BARE, PRIVATE, SPEC, STATE, WORK
from sbpl import Profile, parse, read

from mudroom.core.confinement.plan import explain
from mudroom.core.confinement.spec import Bind, Copy, HostView, Overlay, SandboxSpec
from mudroom.ext.macos.host import enclosing_app, link_nodes
from mudroom.ext.macos.seatbelt import (
    GUARDED,
    MACH,
    SeatbeltRule,
    ancestors,
    compile_profile,
    compile_seatbelt,
    quote,
    real,
    render,
    subpath,
    writable,
)
from tiers import each

GATE = SPEC._replace(network="gate", proxy=3128)
OPEN = SPEC._replace(network="open")
NAMED = BARE._replace(
    stores=("keychain", "display"),
    around=BARE.around._replace(  # type: ignore[union-attr]
        hidden=(STATE, b"/Users/ann/.ssh"),
        live=(
            Bind(b"/Users/ann/Library/Keychains", b"/Users/ann/Library/Keychains", writable=True),
            Bind(b"/private/tmp/agent.sock", b"/private/tmp/agent.sock"),
        ),
    ),
)
NO_NETWORK_0 = BARE._replace(network="none")
SPECS = {
    "level 1": SPEC,
    "level 1, gate": GATE,
    "level 1, open": OPEN,
    "level 0": BARE,
    "level 0, named stores": NAMED,
    "level 0, no network": NO_NETWORK_0,
}
ALL, LEVEL_1, LEVEL_0 = (
    frozenset(SPECS),
    frozenset(name for name in SPECS if "1" in name),
    frozenset(name for name in SPECS if "0" in name),
)
NOBODY: frozenset[str] = frozenset()
OPEN_0 = frozenset({"level 0", "level 0, named stores"})
ONLY_OPEN = frozenset({"level 1, open", "level 0", "level 0, named stores"})
HOME = b"/Users/ann"


def unix(path: bytes) -> dict[str, Any]:
    return {"path": path}


def tcp(host: str, port: int, protocol: str = "tcp") -> dict[str, Any]:
    return {"host": host, "port": port, "protocol": protocol}


CASES: list[tuple[str, str, dict[str, Any], frozenset[str]]] = [
    # access that a command needs
    ("its copy is read", "file-read-data", {"path": WORK + b"/a"}, ALL),
    ("its copy is written", "file-write-data", {"path": WORK + b"/a"}, ALL),
    ("files are made there", "file-write-create", {"path": WORK + b"/src/new"}, ALL),
    ("and removed", "file-write-unlink", {"path": WORK + b"/a"}, ALL),
    ("programs of the copy run", "process-exec", {"path": WORK + b"/build/a.out"}, ALL),
    ("its home is written", "file-write-create", {"path": PRIVATE + b"/home/.cache/x"}, ALL),
    ("its /tmp is written", "file-write-create", {"path": PRIVATE + b"/tmp/x"}, ALL),
    ("the shell runs", "process-exec", {"path": b"/bin/sh"}, ALL),
    ("libraries are read", "file-read-data", {"path": b"/usr/lib/libz.dylib"}, ALL),
    ("and mapped", "file-map-executable", {"path": b"/usr/lib/libz.dylib"}, ALL),
    ("scripts have an interpreter", "process-exec-interpreter", {"path": b"/usr/bin/env"}, ALL),
    ("toolchains run", "process-exec", {"path": HOME + b"/.cargo/bin/cargo"}, ALL),
    ("it forks", "process-fork", {}, ALL),
    ("the root is looked at", "file-read-data", {"path": b"/"}, ALL),
    ("ancestors are looked at", "file-read-metadata", {"path": STATE + b"/p-1/forks"}, ALL),
    ("files are found", "file-test-existence", {"path": b"/usr/bin/git"}, ALL),
    ("ssh keys are not", "file-test-existence", {"path": HOME + b"/.ssh/id_ed25519"}, NOBODY),
    ("other libraries are not mapped", "file-map-executable", {"path": HOME + b"/lib/x.dylib"}, LEVEL_0),
    ("/tmp is a link", "file-read-metadata", {"path": b"/tmp"}, ALL),
    ("the link to its output is followed", "file-read-metadata", {"path": b"/dev/stderr"}, ALL),
    ("firmlinks are passed", "file-read-metadata", {"path": b"/System/Volumes/Data"}, ALL),
    ("random numbers", "file-read-data", {"path": b"/dev/urandom"}, ALL),
    ("/dev/null is written", "file-write-data", {"path": b"/dev/null"}, ALL),
    ("what it has open", "file-read-data", {"path": b"/dev/fd/63"}, ALL),
    ("a terminal is made", "pseudo-tty", {}, ALL),
    ("by the master", "file-read-data", {"path": b"/dev/ptmx"}, ALL),
    ("its own terminal", "file-write-data", {"path": b"/dev/ttys004", "extension": "com.apple.sandbox.pty"}, ALL),
    ("modes of a given one", "file-ioctl", {"path": b"/dev/ttys004"}, ALL),
    ("who the user is", "mach-lookup", {"name": "com.apple.system.opendirectoryd.libinfo"}, ALL),
    ("how many processors", "sysctl-read", {"name": "hw.ncpu"}, ALL),
    ("its processes are signalled", "signal", {"target": "same-sandbox"}, ALL),
    ("and looked at", "process-info-pidinfo", {"target": "same-sandbox"}, ALL),
    ("itself", "process-info-setcontrol", {"target": "self"}, ALL),
    ("semaphores", "ipc-posix-sem", {}, ALL),
    ("shared memory", "ipc-posix-shm-write-create", {"name": "/psm_1234"}, ALL),
    ("unix sockets of its own", "network-outbound", unix(WORK + b"/server.sock"), ALL),
    ("listen on them", "network-bind", unix(PRIVATE + b"/tmp/server.sock"), ALL),
    # the staged project and mudroom's own
    ("the project is not written", "file-write-data", {"path": SPEC.project + b"/a"}, NOBODY),
    ("nor removed", "file-write-unlink", {"path": SPEC.project}, NOBODY),
    ("nor read", "file-read-data", {"path": SPEC.project + b"/a"}, NOBODY),
    ("nor its secrets", "file-read-data", {"path": SPEC.project + b"/.env"}, NOBODY),
    ("nor run", "process-exec", {"path": SPEC.project + b"/a"}, NOBODY),
    ("policy is read", "file-read-data", {"path": SPEC.project + b"/.mudroom/policy.yaml"}, ALL),
    ("and not written", "file-write-data", {"path": SPEC.project + b"/.mudroom/policy.yaml"}, NOBODY),
    ("nor in the copy", "file-write-create", {"path": WORK + b"/.mudroom/policy.yaml"}, NOBODY),
    ("nor put in its place", "file-write-create", {"path": WORK + b"/.mudroom"}, NOBODY),
    ("nor moved away", "file-write-unlink", {"path": WORK + b"/.mudroom"}, NOBODY),
    ("the copy is not moved away", "file-write-unlink", {"path": WORK}, NOBODY),
    ("nor a link put in its place", "file-write-create", {"path": WORK}, NOBODY),
    ("nor of the private directory", "file-write-create", {"path": PRIVATE}, NOBODY),
    ("its profile", "file-write-data", {"path": os.path.dirname(PRIVATE) + b"/profile.sb"}, NOBODY),
    ("mudroom's state is hidden", "file-read-data", {"path": STATE + b"/p-1/journal.db"}, NOBODY),
    ("other forks", "file-read-data", {"path": STATE + b"/p-1/forks/g/copy/work/a"}, NOBODY),
    # the host
    ("documents, at level 1", "file-read-data", {"path": HOME + b"/Documents/letter"}, LEVEL_0),
    ("are not there", "file-read-metadata", {"path": HOME + b"/Documents/letter"}, LEVEL_0),
    ("the home is not listed", "file-read-data", {"path": HOME}, LEVEL_0),
    ("nor written", "file-write-create", {"path": HOME + b"/.zshrc"}, NOBODY),
    ("launch agents", "file-write-create", {"path": HOME + b"/Library/LaunchAgents/x.plist"}, NOBODY),
    ("the system", "file-write-data", {"path": b"/usr/local/bin/git"}, NOBODY),
    ("toolchains", "file-write-data", {"path": HOME + b"/.cargo/bin/cargo"}, NOBODY),
    ("/tmp is the host's", "file-write-create", {"path": b"/private/tmp/x"}, NOBODY),
    ("other terminals", "file-write-data", {"path": b"/dev/ttys001"}, NOBODY),
    ("what is typed there", "file-read-data", {"path": b"/dev/ttys001"}, NOBODY),
    ("disks", "file-write-data", {"path": b"/dev/rdisk0"}, NOBODY),
    ("ssh keys", "file-read-data", {"path": HOME + b"/.ssh/id_ed25519"}, NOBODY),
    ("are not even there", "file-read-metadata", {"path": HOME + b"/.ssh/id_ed25519"}, NOBODY),
    ("a covered file", "file-read-data", {"path": HOME + b"/.netrc"}, frozenset()),
    ("a secret in a toolchain", "file-read-data", {"path": HOME + b"/.cargo/bin/credentials.toml"}, NOBODY),
    ("a named store", "file-write-data", {"path": HOME + b"/.claude/token"},
     frozenset({"level 0", "level 0, no network"})),
    ("the keychain", "file-read-data", {"path": HOME + b"/Library/Keychains/login.keychain-db"},
     frozenset({"level 0, named stores"})),
    ("asks for its items", "mach-lookup", {"name": "com.apple.SecurityServer"}, frozenset({"level 0, named stores"})),
    # ways around
    ("set-user-id", "file-write-setugid", {"path": WORK + b"/a"}, NOBODY),
    ("set-user-id programs", "forbidden-exec-sugid", {"path": b"/bin/ps"}, NOBODY),
    ("hard links", "file-link", {"path": WORK + b"/a"}, NOBODY),
    ("clones", "file-clone", {"path": HOME + b"/.netrc"}, NOBODY),
    ("other processes", "signal", {"target": "others"}, NOBODY),
    ("what they are called with", "process-info-pidinfo", {"target": "others"}, NOBODY),
    ("their variables", "sysctl-read", {"name": "kern.procargs2"}, NOBODY),
    ("their memory", "mach-priv-task-port", {"target": "others"}, NOBODY),
    ("settings of the kernel", "sysctl-write", {"name": "kern.maxproc"}, NOBODY),
    ("firmware", "nvram-set", {}, NOBODY),
    ("launchd", "job-creation", {}, NOBODY),
    ("services of its own name", "mach-register", {"name": "com.apple.x"}, NOBODY),
    ("Finder and Terminal", "appleevent-send", {}, NOBODY),
    ("open(1)", "lsopen", {}, frozenset({"level 0, named stores"})),
    ("the clipboard", "mach-lookup", {"name": "com.apple.pasteboard.1"}, frozenset({"level 0, named stores"})),
    ("settings of programs", "user-preference-write", {}, NOBODY),
    ("written by cfprefsd", "mach-lookup", {"name": "com.apple.cfprefsd.agent"}, NOBODY),
    ("names of all changed files", "mach-lookup", {"name": "com.apple.FSEvents"}, OPEN_0),
    ("mounts", "file-mount", {"path": WORK + b"/m"}, NOBODY),
    ("notifications", "distributed-notification-post", {}, NOBODY),
    ("shared memory of others", "ipc-posix-shm-read-data", {"name": "/secrets"}, NOBODY),
    # the network
    ("docker", "network-outbound", unix(b"/private/var/run/docker.sock"), NOBODY),
    ("docker of the home", "network-outbound", unix(HOME + b"/.docker/run/docker.sock"), NOBODY),
    ("the ssh-agent", "network-outbound", unix(b"/private/tmp/com.apple.launchd.x/Listeners"), NOBODY),
    ("a named socket", "network-outbound", unix(b"/private/tmp/agent.sock"), frozenset({"level 0, named stores"})),
    ("unix sockets elsewhere", "network-bind", unix(b"/private/tmp/server.sock"), NOBODY),
    ("names are looked up", "network-outbound", unix(b"/private/var/run/mDNSResponder"), ONLY_OPEN),
    ("by dnssd", "mach-lookup", {"name": "com.apple.dnssd.service"}, ONLY_OPEN),
    ("the gate", "network-outbound", tcp("127.0.0.1", 3128), ONLY_OPEN | {"level 1, gate"}),
    ("the gate, IPv6", "network-outbound", tcp("::1", 3128), ONLY_OPEN | {"level 1, gate"}),
    ("its port elsewhere", "network-outbound", tcp("192.0.2.1", 3128), ONLY_OPEN),
    ("its port by UDP", "network-outbound", tcp("127.0.0.1", 3128, "udp"), ONLY_OPEN),
    ("a database of the host", "network-outbound", tcp("127.0.0.1", 5432), ONLY_OPEN),
    ("the world", "network-outbound", tcp("93.184.216.34", 443), ONLY_OPEN),
    ("DNS of the world", "network-outbound", tcp("8.8.8.8", 53, "udp"), ONLY_OPEN),
    ("cloud metadata", "network-outbound", tcp("169.254.169.254", 80), ONLY_OPEN),
    ("listening", "network-bind", tcp("127.0.0.1", 8000), ONLY_OPEN),
    ("being reached", "network-inbound", tcp("127.0.0.1", 8000), ONLY_OPEN),
    ("sockets of the kernel", "system-socket", {"domain": "AF_SYSTEM"}, NOBODY),
    ("TCP sockets", "system-socket", {"domain": "AF_INET"}, ONLY_OPEN | {"level 1, gate"}),
    ("trustd", "mach-lookup", {"name": "com.apple.trustd.agent"}, ONLY_OPEN),
    ("trustd of the machine", "mach-lookup", {"name": "com.apple.trustd"}, ONLY_OPEN),
    ("what fetches for others", "mach-lookup", {"name": "com.apple.nsurlsessiond"}, OPEN_0),
    ("what installs helpers", "mach-lookup", {"name": "com.apple.xpc.smd"}, OPEN_0),
    ("LaunchServices", "mach-lookup", {"name": "com.apple.coreservices.launchservicesd"},
     frozenset({"level 0, named stores"})),
    ("settings of proxies", "mach-lookup", {"name": "com.apple.SystemConfiguration.configd"},
     OPEN_0 | {"level 1, gate", "level 1, open"}),
    ("interfaces", "sysctl-read", {"name": "net.routetable.0.0.3.0"}, ONLY_OPEN),
]  # fmt: skip


@functools.cache
def profiles() -> dict[str, Profile]:
    return {name: parse(compile_profile(spec)) for name, spec in SPECS.items()}


@each(("name", "about", "operation", "context", "permitted"), [(name, *case) for name, case in product(SPECS, CASES)])
def test_what_a_profile_decides(
    name: str, about: str, operation: str, context: dict[str, Any], permitted: frozenset[str]
) -> None:
    assert profiles()[name].allows(operation, **context) == (name in permitted), about


# --- paths ---

NAME = st.binary(min_size=1, max_size=40).filter(lambda name: b"/" not in name and b"\0" not in name)
NASTY = (
    b'a"b', b"a\\b", b"a\\", b'\\"', b"with space", b"new\nline", b"tab\there", b"(deny", b")", b'") (allow default) (',
    b"; comment", b'#"x"', b"[a-z]*.+?^$", b"\xff\xfe", "caf\u00e9".encode(), "cafe\u0301".encode(), b"\x01", b"\\x41",
)  # fmt: skip
"""Characters with a meaning somewhere: in strings, in expressions, in regular expressions; bytes that are no text; a
name in both normal forms."""


@given(name=NAME)
def test_any_name_is_read_back_as_it_was(name: bytes) -> None:
    assert read(quote(b"/" + name)) == [b"/" + name]


@each("name", NASTY)
def test_a_project_of_any_name(name: bytes) -> None:
    work, private = STATE + b"/" + name + b"/work", STATE + b"/" + name + b"-private"
    spec = GATE._replace(view=Copy(work), scratch=private, binds=(Bind(b"/opt/" + name, b"/opt/" + name),))
    profile = parse(compile_profile(spec))
    assert profile.allows("file-write-data", path=work + b"/a") and profile.allows(
        "file-read-data", path=b"/opt/" + name
    )
    assert not profile.allows("file-write-data", path=STATE + b"/" + name + b"/worked")
    assert not profile.allows("file-write-data", path=b"/opt/" + name)
    assert not profile.allows("file-read-data", path=HOME + b"/.ssh/id_ed25519")
    assert len(profile.rules) == len(parse(compile_profile(GATE)).rules)
    assert "\n" not in "".join(explain(compile_seatbelt(spec)))


@given(name=NAME)
def test_a_rule_is_for_one_name_and_what_is_in_it(name: bytes) -> None:
    spec = SPEC._replace(view=Copy(STATE + b"/" + name))
    profile = parse(compile_profile(spec))
    assert profile.allows("file-write-data", path=STATE + b"/" + name + b"/x")
    for other in (name + b"x", name[:-1], name.swapcase() if name.swapcase() != name else name + b" "):
        assert not profile.allows("file-write-data", path=STATE + b"/" + other + b"/x")


def test_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        compile_profile(SPEC._replace(view=Copy(b"/Users/ann/a\0b")))


@each(
    ("path", "kernel"),
    [
        (b"/tmp/x", b"/private/tmp/x"),
        (b"/var/folders/a/b/T", b"/private/var/folders/a/b/T"),
        (b"/etc", b"/private/etc"),
        (b"/tmpx", b"/tmpx"),
        (b"/private/tmp/x", b"/private/tmp/x"),
        (b"/System/Volumes/Data/Users/ann", b"/Users/ann"),
        (b"/System/Volumes/Data/private/var/x", b"/private/var/x"),
        (b"/System/Volumes/Data/.Spotlight", b"/System/Volumes/Data/.Spotlight"),
        (b"/System/Volumes/Database", b"/System/Volumes/Database"),
        (b"/usr/local/bin", b"/usr/local/bin"),
    ],
)
def test_paths_are_as_the_kernel_says_them(path: bytes, kernel: bytes) -> None:
    assert real(path) == kernel


def test_every_path_of_a_profile_is_a_real_one() -> None:
    spec = SPEC._replace(
        view=Copy(b"/tmp/work"),
        scratch=b"/var/folders/x/private",
        masks=(b"/etc/secret",),
        binds=(Bind(b"/System/Volumes/Data/Users/ann/bin", b"/Users/ann/bin"),),
    )
    named = set(parse(compile_profile(spec)).paths()) - {b"/tmp", b"/var", b"/etc", b"/System/Volumes/Data"}
    assert {path for path in named if real(path) != path} == set()


def test_ancestors_can_be_looked_at_and_not_listed() -> None:
    assert ancestors([b"/a/b/c", b"/a/d"]) == (b'(literal "/")', b'(literal "/a")', b'(literal "/a/b")')
    profile = parse(compile_profile(SPEC))
    for depth in range(1, WORK.count(b"/")):
        above = b"/".join(WORK.split(b"/")[: depth + 1])
        assert profile.allows("file-read-metadata", path=above)
        assert not profile.allows("file-read-data", path=above)


@each("name", SPECS)
def test_links_on_the_way_are_passed(name: str) -> None:
    """The kernel asks for the metadata of a link itself: without it, DNS, TLS and tools behind links do not work."""
    node = HOME + b"/.cargo"
    spec = SPECS[name]._replace(
        links=((b"/Volumes/dev/cargo", node), (b"dev-2", b"/Volumes/dev")),
        binds=(*SPECS[name].binds, Bind(b"/Volumes/dev-2/cargo/bin", node + b"/bin")),
    )
    profile = parse(compile_profile(spec))
    for path in (node, b"/Volumes/dev", b"/Volumes", HOME, b"/Volumes/dev-2/cargo/bin/cargo"):
        assert profile.allows("file-read-metadata", path=path), path
    if name in LEVEL_1:
        assert not profile.allows("file-read-data", path=node)
        assert not profile.allows("file-read-metadata", path=HOME + b"/.cargo/credentials.toml")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (b"/Applications/Xcode-beta.app/Contents/Developer", b"/Applications/Xcode-beta.app"),
        (b"/Library/Developer/CommandLineTools", b"/Library/Developer/CommandLineTools"),
        (b"/Users/ann/notes.app/Contents", b"/Users/ann/notes.app/Contents"),
    ],
)
def test_xcode_is_shown_with_the_libraries_beside_its_programs(path: bytes, shown: bytes) -> None:
    """/usr/bin/git and python3 are shims that start what xcode-select(1) names."""
    assert enclosing_app(path) == shown


def test_links_of_a_way_are_found(tmp_path: Path) -> None:
    base = os.fsencode(tmp_path)
    os.makedirs(base + b"/disk-2/cargo/bin")
    os.makedirs(base + b"/home")
    os.symlink(b"disk-2", base + b"/disk")
    os.symlink(b"../disk/cargo", base + b"/home/.cargo")
    os.symlink(b"round", base + b"/round")
    assert list(
        link_nodes([base + b"/home/.cargo/bin", base + b"/home/.cargo/bin", base + b"/round/x", b"/none/x"])
    ) == [
        (b"../disk/cargo", base + b"/home/.cargo"),
        (b"disk-2", base + b"/disk"),
        (b"round", base + b"/round"),
    ]


_WORDS = ("file-read*", "file-read-data", "file-read-metadata", "file-write*", "file-write-data")
_RULES = st.lists(
    st.builds(
        SeatbeltRule,
        st.sampled_from(("allow", "deny")),
        st.lists(st.sampled_from(_WORDS), min_size=1, max_size=3, unique=True).map(" ".join),
        st.sampled_from((b"/a", b"/a/b", b"/a/b/c", b"/d")).map(lambda path: (subpath(path),)),
        st.just(""),
        st.just(False),
    ),
    max_size=8,
)


@given(
    rules=_RULES, operation=st.sampled_from(("file-read-data", "file-read-metadata", "file-write-data", "file-ioctl"))
)
def test_rendered_rules_with_filters_mean_the_same_in_each_reading(rules: list[SeatbeltRule], operation: str) -> None:
    profile = parse(render(rules))
    for path in (b"/a", b"/a/b", b"/a/b/c/x", b"/d", b"/e"):
        last = [
            rule.action
            for rule in rules
            if any(operation.startswith(word.rstrip("*")) for word in rule.operations.split())
            and any(path == root or path.startswith(root + b"/") for root in (rule.filters[0][10:-2],))
        ]
        assert profile.allows(operation, path=path) == (last[-1:] == ["allow"])


# --- shape ---


def test_all_that_is_writable_keeps_its_place() -> None:
    cache = Bind(b"/Users/ann/Library/mudroom/cache", b"/x", writable=True)
    for spec in (SPEC._replace(binds=(cache,)), NAMED):
        profile = parse(compile_profile(spec))
        for path in writable(spec):
            assert profile.allows("file-write-create", path=path + b"/x"), path
            assert not profile.allows("file-write-create", path=path), path
            assert not profile.allows("file-write-unlink", path=path), path


def test_no_directory_above_something_hidden_is_moved() -> None:
    cargo = Bind(HOME + b"/.cargo", HOME + b"/.cargo", writable=True)
    masked = SPEC._replace(binds=(cargo,), masks=(HOME + b"/.cargo/a/b/credentials.toml",))
    around = HostView(live=(cargo,), hidden=(HOME + b"/.cargo/a/b/keys",), covered=(HOME + b"/.cargo/a/b/token",))
    above = (b"", b"/a", b"/a/b")
    for spec, names in (
        (masked, (*above, b"/a/b/credentials.toml")),
        (BARE._replace(around=around), (*above, b"/a/b/keys", b"/a/b/token")),
    ):
        profile = parse(compile_profile(spec))
        for name in names:
            assert not profile.allows("file-write-unlink", path=HOME + b"/.cargo" + name), name
            assert not profile.allows("file-write-create", path=HOME + b"/.cargo" + name), name
        for name in (b"/other", b"/a/other", b"/a/b/other"):
            assert profile.allows("file-write-unlink", path=HOME + b"/.cargo" + name), name


def test_what_is_hidden_in_something_shown_is_hidden() -> None:
    """And a path shown inside the hidden one is shown: the inner path decides, as with mounts."""
    config, inner = (Bind(HOME + name, HOME + name, writable=True) for name in (b"/.config", b"/.config/gh/x"))
    around = HostView(live=(config, inner), hidden=(HOME + b"/.config/gh",))
    profile = parse(compile_profile(BARE._replace(around=around)))
    for operation in ("file-read-data", "file-write-data", "file-write-unlink"):
        assert profile.allows(operation, path=HOME + b"/.config/a")
        assert not profile.allows(operation, path=HOME + b"/.config/gh/token")
        assert profile.allows(operation, path=HOME + b"/.config/gh/x/a")


def test_what_is_shown_in_the_project_is_still_read() -> None:
    inside = Bind(BARE.project + b"/.claude", BARE.project + b"/.claude", writable=True)
    state = BARE.project + b"/state/work"
    spec = BARE._replace(view=Copy(state), around=HostView(live=(inside,), shown=(Bind(HOME, HOME),)))
    profile = parse(compile_profile(spec))
    for path in (inside.source + b"/token", state + b"/a", HOME + b"/b"):
        assert profile.allows("file-read-data", path=path), path
    assert profile.allows("file-read-metadata", path=BARE.project)
    assert not profile.allows("file-read-data", path=BARE.project + b"/.env")


def test_nothing_is_guessed_without_a_port() -> None:
    profile = parse(compile_profile(SPEC._replace(network="gate", proxy=0)))
    assert not any(profile.allows("network-outbound", **tcp("127.0.0.1", port)) for port in (0, 80, 3128))


def test_no_service_is_asked_without_a_reason() -> None:
    assert all(row.why and row.when in ("always", "network", "open", "keychain", "display") for row in MACH)
    assert all(row.why and row.when in ("", "keychain", "display") for row in GUARDED)
    closed = parse(compile_profile(SPEC))
    asked = {row.name for row in (*MACH, *GUARDED) if closed.allows("mach-lookup", name=row.name)}
    assert asked == {row.name for row in MACH if row.when == "always"}


def test_a_plan_without_secrets_and_without_around() -> None:
    bare = BARE._replace(masks=(), around=HostView())
    profile = parse(compile_profile(bare))
    assert profile.allows("file-read-data", path=HOME + b"/.ssh/id_ed25519")  # nothing is hidden
    assert not profile.allows("file-write-data", path=HOME + b"/.ssh/id_ed25519")
    with pytest.raises(AssertionError):
        compile_seatbelt(SPEC._replace(view=Overlay((b"/a",), b"/b", b"/c")))


SNAPSHOTS = Path(__file__).parents[1] / "seatbelt"


@pytest.mark.parametrize(("name", "spec"), [("level-1", GATE), ("level-0", BARE)])
def test_snapshot(name: str, spec: SandboxSpec) -> None:
    """To take it anew: MUDROOM_SNAPSHOTS=1. Read the difference: a profile that allows more needs a reason."""
    place = SNAPSHOTS / f"{name}.sb"
    if os.environ.get("MUDROOM_SNAPSHOTS"):
        place.write_bytes(compile_profile(spec))
    assert compile_profile(spec) == place.read_bytes()

"""A project whose files lie at one path of this machine and that commands see at another: a worker's base of another
machine's project. The machine that it comes from ("home") is a directory that is moved away meanwhile, so that its
paths do not exist here."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from archived import archived
from conftest import Place, act_as, full_listing, listing, tick
from mudroom.core.agent.card import AgentCard
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.sandbox.client.client import Client
from mudroom.session import Session, upkeep
from mudroom.stage.layers.layer import remove_tree
from mudroom.vault.store.store import open_vault, vault_path
from whole_text import whole

pytestmark = pytest.mark.both_users
VIEWS = ("overlay", "copy")
GIT = "git -c user.name=T -c user.email=t@example.org -c init.defaultBranch=main -c safe.directory=*"


class Machines:
    """The project's own machine, ``home``, and a worker with a read-only base of it."""

    def __init__(self, root: Path, client: Client) -> None:
        self.root, self._client = root, client
        self.home = Place(root / "ann", client)
        self.ground = root / "worker/grounds/x"
        self.state = root / "worker/state"
        self._sessions: list[Session] = []
        self._aside = root / "aside"

    @property
    def path(self) -> bytes:
        """The project's own path."""
        return os.fsencode(self.home.project)

    def ship(self) -> None:
        """Give the worker the files. From now on the paths of home do not exist."""
        shutil.copytree(self.home.project, self.ground, symlinks=True)
        self.home.root.rename(self._aside)

    def arrive(self) -> None:
        self._aside.rename(self.home.root)

    def worker(self, settings: Settings | None = None, at: bytes | None = None, **options: object) -> Session:
        tick()
        session = Session.open(
            os.fsencode(self.ground),
            state=os.fsencode(self.state),
            home=os.fsencode(self.home.home),
            environ={**os.environb, b"LC_ALL": b"C"},
            settings=settings or Settings(),
            client=self._client,
            appears_at=at or self.path,
            **options,
        )
        self._sessions.append(session)
        return session

    def close(self) -> None:
        self.home.close()
        for session in self._sessions:
            session.close()


@pytest.fixture
def machines(client: Client) -> Iterator[Machines]:
    """Outside of /tmp, which is private inside."""
    above = "/var/lib" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_dir
    root = Path(tempfile.mkdtemp(prefix="mudroom-", dir=above))
    (root / "ann").mkdir()
    machines = Machines(root, client)
    yield machines
    machines.close()
    remove_tree(os.fsencode(root))


def sh(session: Session, script: str, fork: str | None = None, cwd: bytes | None = None) -> Result:
    return session.run([b"sh", b"-ec", script.encode()], fork=fork, cwd=cwd)


def out(session: Session, script: str, fork: str | None = None, cwd: bytes | None = None) -> str:
    result = sh(session, script, fork, cwd)
    assert result.exit_code == 0, result.stderr
    return result.stdout.decode()


def digests(session: Session, fork: str) -> object:
    """Return a fork's whole tree as commands see it."""
    script = "find . -name .git -prune -o -printf '%p %y %m %l\\n' | sort; find . -type f | sort | xargs sha256sum"
    return out(session, script, fork)


# --- a day's work on a worker ---


@pytest.mark.parametrize("view", VIEWS)
def test_commands_see_the_project_at_its_own_path(machines: Machines, view: str) -> None:
    machines.home.write("sub/f", "one\n")
    machines.home.write("where.sh", 'echo "$0 $PWD"\n', 0o755)
    machines.ship()
    before = full_listing(machines.ground)
    with machines.worker(Settings(view=view)) as session:  # type: ignore[arg-type]
        path = machines.path.decode()
        script = f"pwd -P; echo $HOME; sh {path}/where.sh; echo two >>{path}/sub/f; ln -s {path}/sub/f link; cat link"
        result = sh(session, script)
        home = str(machines.home.home)
        assert result.stdout.decode() == f"{path}\n{home}\n{path}/where.sh {path}\none\ntwo\n", result.stderr
        assert (session.project, result.exit_code) == (machines.path, 0)
        changed = {change.path: change for change in result.changeset.changes}
        assert set(changed) == {b"sub/f", b"link"}
        assert changed[b"link"].entry.target == machines.path + b"/sub/f"
        assert "leads-out" not in changed[b"link"].flags and changed[b"link"].flags == ()
        for cwd, shown in ((b"sub", "/sub"), (b"./sub/..", ""), (machines.path + b"/sub", "/sub")):
            assert out(session, "pwd -P", result.fork, cwd) == path + shown + "\n"
    assert full_listing(machines.ground) == before
    assert not machines.home.root.exists()


def test_a_virtual_environment_of_home_works(machines: Machines) -> None:
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    environment = machines.home.project / ".venv"
    subprocess.run([python, "-m", "venv", "--without-pip", environment], check=True)
    (environment / "bin/tool").write_text(f"#!{environment}/bin/python\nimport sys; print(sys.prefix, sys.argv[0])\n")
    (environment / "bin/tool").chmod(0o755)
    machines.ship()
    with machines.worker() as session:
        assert out(session, ".venv/bin/tool; . .venv/bin/activate; tool; echo $VIRTUAL_ENV").split("\n") == [
            f"{environment} .venv/bin/tool",
            f"{environment} {environment}/bin/tool",
            str(environment),
            "",
        ]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_of_the_base(machines: Machines) -> None:
    """A secret that was not sent is an empty file in the base; git does not take that for a change."""
    machines.home.write("f", "one\n")
    machines.home.write(".gitignore", "build\n")
    subprocess.run(
        ["sh", "-ec", f"{GIT} init -q; {GIT} add .; {GIT} commit -qm m"], cwd=machines.home.project, check=True
    )
    machines.home.write(".env", "")
    machines.ship()
    with machines.worker() as session:
        assert (
            out(session, f"{GIT} status --porcelain; {GIT} rev-parse --show-toplevel")
            == f"{session.project.decode()}\n"
        )
        result = sh(session, f"echo two >>f; mkdir build; {GIT} commit -qam two; {GIT} log --format=%s")
        assert result.stdout == b"two\nm\n", result.stderr
        assert b"f" in {change.path for change in result.changeset.changes}


@pytest.mark.parametrize("view", VIEWS)
def test_everything_that_names_the_project_names_its_own_path(machines: Machines, view: str) -> None:
    machines.home.write("f", "one\n")
    machines.home.write(".mudroom/policy.yaml", "version: 1\n")
    machines.ship()
    with machines.worker(Settings(view=view)) as session:  # type: ignore[arg-type]
        sh(session, "echo two >>f; ! echo x >.mudroom/policy.yaml", "k")
        explained = "\n".join(session.explain(machines.path))
        assert machines.path.decode()[1:] in explained
        assert session.why_path(machines.path + b"/f").verdict == session.why_path(machines.path).verdict != "hidden"
        ground = os.fsencode(machines.ground)
        assert session.why_path(ground).verdict == "hidden"
        changes = session.changes.review("k").changeset
        assert [change.path for change in changes.changes] == [b"f"]
        assert b"".join(session.changes.diff("k")).startswith(b"diff --git a/f b/f\n")
        assert (session.changes.conflicts("k"), session.changes.drift("k")) == ([], [])
        events = [event.data for event in session.vault.journal.events()]
        assert not [data for data in events if ground in data.encode()]
        assert upkeep.problems(session) == []


@pytest.mark.parametrize("view", VIEWS)
def test_forks_of_a_fork_checkpoints_and_file_tools(machines: Machines, view: str) -> None:
    machines.home.write("f", "one\n")
    machines.ship()
    with machines.worker(Settings(view=view)) as session:  # type: ignore[arg-type]
        sh(session, "echo two >>f", "k")
        session.forks.checkpoint("k", "before")
        for number in range(4):  # enough that a sandbox stands
            assert out(session, f"echo {number} >>f; pwd", "k") == machines.path.decode() + "\n"
        session.forks.new("child", parent="k")
        assert out(session, "cat f", "child") == "one\ntwo\n0\n1\n2\n3\n"
        session.forks.files("child").write(b"made", b"by a tool\n")
        assert out(session, f"cat {machines.path.decode()}/made", "child") == "by a tool\n"
        session.forks.rollback("k", "before")
        assert out(session, "cat f", "k") == "one\ntwo\n"
        session.forks.discard("child")


def test_commands_that_share_a_sandbox(machines: Machines) -> None:
    machines.home.write("f", "one\n")
    machines.ship()
    with machines.worker() as session:
        server = session.start([b"sh", b"-c", b"pwd >started; exec sleep 60"], fork="k")
        assert (
            out(session, "while ! test -s started; do :; done; cat started; pwd", "k", b".")
            == 2 * f"{session.project.decode()}\n"
        )
        server.end(0)


# --- what is not there ---


@pytest.mark.parametrize("view", VIEWS)
def test_no_path_of_the_worker_is_seen(machines: Machines, view: str) -> None:
    """A hostile command looks for the base, the state, and other bases beside it."""
    machines.home.write("f", "one\n")
    machines.ship()
    (machines.ground.parent / "other").mkdir()
    (machines.ground.parent / "other/secret").write_text("another origin's\n")
    worker = str(machines.root / "worker")
    with machines.worker(Settings(view=view)) as session:  # type: ignore[arg-type]
        script = f"""
            for path in {worker} {machines.ground} {machines.ground.parent}/other {machines.state}; do
                test ! -e "$path" || echo "seen $path"
                ls /proc/1/root"$path" /proc/self/root"$path" ../../../../../../"$path" 2>/dev/null || :
            done
            for file in mountinfo mounts maps environ cmdline; do
                ! tr '\\0' '\\n' 2>/dev/null </proc/1/$file | grep -aF -e /grounds || :
            done
            ls -ld /proc/*/cwd /proc/*/fd/* 2>/dev/null | grep -e /worker/ || :
            mkdir -p {machines.ground} 2>/dev/null && echo mine >{machines.ground}/f || :
            cat f
        """
        assert out(session, script) == "one\n"
    assert (machines.ground / "f").read_text() == "one\n"


def test_another_project_at_that_path_of_this_machine_is_not_touched(machines: Machines) -> None:
    """The worker's user has a project of their own where the origin's would be."""
    machines.home.write("f", "of home\n")
    machines.home.write(".env", "")
    machines.ship()
    decoy = machines.home.project
    decoy.mkdir(parents=True)
    machines.home.home.mkdir()
    for name in ("f", ".env", ".git/config", "own", ".mudroom/policy.yaml"):
        (decoy / name).parent.mkdir(exist_ok=True)
        (decoy / name).write_text("TOKEN=the-worker-users-own-12345\n")
    before = listing(decoy)
    with machines.worker() as session:
        result = sh(session, "cat f; ls -A; grep -r TOKEN . /proc/self/environ || :; echo x >>own; echo y >>f")
        assert result.stdout == b"of home\n.env\nf\n"
        assert {change.path for change in result.changeset.changes} == {b"f", b"own"}
        assert b"TOKEN=" not in archived(session, result.fork)
        assert b"TOKEN=" not in b"".join(session.changes.diff(result.fork))
        assert session.changes.drift(result.fork) == []
    assert listing(decoy) == before


def test_a_home_of_another_user_at_that_path_is_not_looked_into(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_not_looked_into(machines, monkeypatch)


def require_not_looked_into(machines: Machines, monkeypatch: pytest.MonkeyPatch, card: AgentCard | None = None) -> None:
    """Root could read it."""
    machines.home.write("f", "of home\n")
    machines.ship()
    other = machines.home.home
    for name in (".gitconfig", ".bashrc", ".local/bin/tool", ".npmrc"):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text("[user]\n\tname = another\n")
    settings = Settings(credentials=(b"~/.npmrc",))
    with machines.worker(settings) as session:
        assert ".gitconfig" in out(session, "cd; ls -A"), "this user's own is shown"
    really = os.stat

    def of_another(path: bytes, *, follow_symlinks: bool = True) -> os.stat_result:
        info = really(path, follow_symlinks=follow_symlinks)
        if path != os.fsencode(other):
            return info
        return os.stat_result((*info[:4], os.geteuid() + 1, *info[5:]))

    monkeypatch.setattr("mudroom.session.confinement.appearance.os.stat", of_another)
    session = machines.worker(settings, card=card, level=1)
    monkeypatch.undo()
    assert out(session, "cd; find . -type f -size +0; echo $HOME") == f"{other}\n"


def test_what_the_policy_of_home_shows_and_this_machine_has_not(machines: Machines) -> None:
    machines.home.write("f", "one\n")
    machines.ship()
    (machines.root / "data").mkdir()
    here, absent = os.fsencode(machines.root / "data"), b"/srv/no-such/data"
    with machines.worker(Settings(read=(here, absent))) as session:
        result = sh(session, f"ls -d {machines.root}/data")
    assert (result.exit_code, result.notes) == (0, ("read: /srv/no-such/data is not on this machine",))


@pytest.mark.parametrize("view", VIEWS)
def test_files_are_made_with_the_umask_of_home(machines: Machines, view: str) -> None:
    """A worker's own is 077: its state is nobody else's."""
    machines.home.write("f", "one\n")
    machines.ship()
    before = os.umask(0o077)
    try:
        session = machines.worker(Settings(view=view), umask=0o027)  # type: ignore[arg-type]
        assert out(session, "umask; mkdir d; echo x >d/f; stat -c %a d d/f", "k") == "0027\n750\n640\n"
    finally:
        os.umask(before)
    changes = {change.path: change.entry.mode & 0o777 for change in session.changes.of("k").changes}
    assert changes == {b"d": 0o750, b"d/f": 0o640}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("how", ["file", "link", "directory link", "included"])
def test_a_base_leads_to_no_repository_of_this_machine(machines: Machines, how: str) -> None:
    """The base is a stranger's archive at its origin: its ``.git`` names a repository of the worker's user, or a link
    leads to a work tree that the repository does name."""
    theirs, tree = machines.root / "theirs", machines.root / "tree"
    theirs.mkdir()
    (theirs / "f").write_text("TOKEN of the worker's user\n")
    script = f"{GIT} init -q; {GIT} add .; {GIT} commit -qm secret; {GIT} worktree add -q {tree}"
    subprocess.run(["sh", "-ec", script], cwd=theirs, check=True)
    project = machines.home.project
    if how == "file":
        (project / ".git").write_text(f"gitdir: {theirs}/.git/worktrees/tree\n")
    elif how == "link":
        (project / ".git").symlink_to(theirs / ".git")
    elif how == "directory link":
        (project / "sub").symlink_to(tree)
    else:
        subprocess.run(["sh", "-ec", f"{GIT} init -q"], cwd=project, check=True)
        with (project / ".git/config").open("a") as config:
            config.write(f"[include]\n\tpath = {theirs}/.git/config\n[core]\n\thooksPath = {theirs}\n")
    machines.ship()
    hostile = f"""
        git log 2>/dev/null || :
        if test -L .git -o -f .git; then mv .git old; fi
        if test -L sub; then rm sub; mkdir sub; cd sub; fi
        mkdir -p .git/refs/heads .git/objects/info
        echo {theirs}/.git/objects >.git/objects/info/alternates
        echo ref: refs/heads/main >.git/HEAD
        printf '%040d\\n' 0 | tr 0 a >.git/refs/heads/main
        cat .git/f {theirs}/f ../tree/f 2>/dev/null || :
    """
    before = listing(theirs)
    for settings in (Settings(), Settings(view="copy")):
        with machines.worker(settings) as session:
            result = sh(session, hostile)
            assert (result.stdout, result.exit_code) == (b"", 0), result.stderr
            assert not [note for note in result.notes if "theirs" in note]
            assert b"TOKEN" not in archived(session, result.fork)
    assert listing(theirs) == before


# --- one base, many sessions ---


def test_two_sessions_see_one_base_at_two_paths(machines: Machines) -> None:
    machines.home.write("f", "one\n")
    machines.ship()
    before = full_listing(machines.ground)
    paths = [machines.path, b"/srv/no-such/dir/of/mine"]
    sessions = [machines.worker(at=path) for path in paths]
    assert sessions[0].vault.path != sessions[1].vault.path
    found: list[str] = ["", ""]

    def work(number: int) -> None:
        for time in range(3):
            found[number] += out(sessions[number], f"pwd; echo {time} >>f; cat f", "k")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, path in enumerate(paths):
        at = path.decode()
        assert found[number] == f"{at}\none\n0\n{at}\none\n0\n1\n{at}\none\n0\n1\n2\n"
    assert full_listing(machines.ground) == before


def test_the_vault_belongs_to_both_paths(machines: Machines) -> None:
    machines.home.write("f", "one\n")
    machines.ship()
    state, ground = os.fsencode(machines.state), os.fsencode(machines.ground)
    names = {
        vault_path(state, b"/p"),
        vault_path(state, b"/p", b"/g"),
        vault_path(state, b"/p", b"/h"),
        vault_path(state, b"/q", b"/g"),
    }
    assert len(names) == 4
    assert vault_path(state, b"/p") == vault_path(state, b"/p", b"/p")
    with machines.worker() as session:
        sh(session, "echo two >f", "k")
        path = session.vault.path
    with machines.worker() as session:
        assert [fork.name for fork in session.vault.forks()] == ["k"]
    vault = next(vault for vault in upkeep.vaults_of(state) if vault.path == path)
    assert (vault.project, vault.source, vault.is_elsewhere) == (machines.path, ground, True)
    total = upkeep.vault_total(vault)
    assert (total.exists, total.forks, total.unapplied) == (True, 1, 1)
    with pytest.raises(MudroomError):
        upkeep.remove_vault(vault)
    remove_tree(ground)
    upkeep.remove_vault(vault)
    assert not os.path.exists(path)
    plain = open_vault(state, ground)
    assert not plain.is_elsewhere and not os.path.exists(plain.path + b"/source")


def test_its_own_path_is_no_other_path(machines: Machines) -> None:
    with machines.home.session(appears_at=os.fsencode(machines.home.project)) as session:
        assert not session.vault.is_elsewhere
        assert session.vault.path == vault_path(os.fsencode(machines.home.state), session.project)


# --- what cannot be ---


def test_nothing_is_applied_to_a_base(machines: Machines) -> None:
    machines.home.write("f", "one\n")
    machines.ship()
    before = full_listing(machines.ground)
    with machines.worker() as session:
        sh(session, "echo two >f", "k")
        changes = session.changes
        with session.alone("a test"):
            for action in (
                lambda: changes.apply("k"),
                changes.undo,
                changes.redo,
                session.vault.new_apply,
                lambda: session.changes_verified_by([b"true"]).apply("k"),
            ):
                with pytest.raises(UsageError) as refused:
                    action()
                assert refused.value.message == (
                    f"{machines.path.decode()} is only shown here: its changes are applied where the project is"
                )
        assert os.listdir(session.vault.path + b"/applies") == []
    assert full_listing(machines.ground) == before


def test_where_there_is_no_mount_namespace_it_is_refused_by_name(machines: Machines) -> None:
    machines.home.write("f", "one\n")
    machines.ship()
    with machines.worker() as session:
        act_as(session, level=0)
        needs = "a project that appears at another path needs a mount namespace (level 1 or 2); found: "
        hint = " (mudroom doctor says what this machine permits; without it, open the project at its own path)"
        for attempt in (lambda: sh(session, "true"), session.granted, lambda: session.explain(machines.path)):
            with pytest.raises(Unsupported, match=whole(needs + "level 0" + hint)):
                attempt()
        act_as(session, level=None)
        session.machine.confinement.mode = "landlock"
        with pytest.raises(Unsupported, match=whole(needs + "no user namespaces for this session" + hint)):
            sh(session, "true", "k")
        with pytest.raises(Unsupported, match=re.escape(needs)):
            session.start([b"true"], fork="k")


SYSTEM = [
    "/usr/p", "/usr", "/etc/p", "/proc/p", "/proc", "/dev/p", "/dev", "/sys/p", "/bin/p", "/lib64/p", "/opt",
    "/usr/src", "/usr/local/p", "/nix/store", "/.mudroom/p", "/boot/x", "/var/run/p",
]  # fmt: skip
HIDING = ["/var", "/tmp", "/run", "/dev/shm", "/var/tmp"]
UNFIT = {
    "": "it is not absolute",
    "home/ann/proj": "it is not absolute",
    "/": "it is the root directory",
    "/home/ann/../proj": "it is no plain path",
    "/home/ann/./proj": "it is no plain path",
    "/home//ann": "it is no plain path",
    "//home/ann": "it is no plain path",
    "/home/ann/": "it is no plain path",
    "/home/a\0b": "a path cannot hold a NUL",
    "/home/" + "a" * 256: "it is too long",
    "/home" + "/abcdefgh" * 500: "it is too long",
    **dict.fromkeys(SYSTEM, "is the system's"),
    **dict.fromkeys(HIDING, "it would hide"),
}


def test_a_path_where_no_project_can_appear_is_one_line(machines: Machines) -> None:
    machines.ship()
    home, state = os.fsencode(machines.home.home), os.fsencode(machines.state)
    wrong = {**UNFIT, str(machines.home.home): "the home"}
    wrong[str(machines.root)] = "the home"
    options = {"state": state, "environ": os.environb}
    found = {}
    for path in wrong:
        try:
            with Session.open(os.fsencode(machines.ground), home=home, appears_at=path.encode(), **options):  # type: ignore[arg-type]
                found[path] = ""
        except UsageError as error:
            found[path] = error.message
            assert "\n" not in error.message and error.hint, path
    assert {path: text for path, text in found.items() if wrong[path] not in text or (wrong[path] and not text)} == {}
    for path in ("relative", "/usr/x", "/proc/1", "/tmp", "/a/../b"):
        with pytest.raises(UsageError, match="the private home cannot appear at"):
            Session.open(os.fsencode(machines.ground), home=path.encode(), appears_at=b"/srv/p", **options)  # type: ignore[arg-type]
    assert not machines.state.exists()


def test_a_path_in_a_directory_that_commands_are_shown(machines: Machines) -> None:
    machines.ship()
    shown = machines.root / "shown"
    shown.mkdir()
    session = machines.worker(Settings(read=(os.fsencode(shown),)), at=os.fsencode(shown / "proj"))
    with pytest.raises(
        UsageError, match=r"cannot appear at .*/shown/proj: commands are shown .*/shown of this machine"
    ):
        sh(session, "true")
    assert list(shown.iterdir()) == []


def test_a_home_in_a_directory_of_the_system(machines: Machines) -> None:
    machines.ship()
    for home in (b"/opt/no-such-service", b"/var/lib/no-such-service"):
        with Session.open(
            os.fsencode(machines.ground),
            state=os.fsencode(machines.state),
            home=home,
            environ=os.environb,
            appears_at=home + b"/proj",
        ) as session:
            assert out(session, "cd; pwd; ls /opt >/dev/null; echo x >f") == os.fsdecode(home) + "\n"


def test_paths_that_are_unusual_and_can_be(machines: Machines) -> None:
    machines.home.write("f", "one\n")
    machines.ship()
    for path in (
        b"/tmp/deep/in/tmp",
        b"/run/p",
        b"/dev/shm/p",
        b"/a",
        b"/opt/no-such/p",
        b"/usr/src/no-such",
        b"/usr/local/src/p",
        b"/srv/a b,c:d\\\n\xff$(x)",
        b"/usr-local/p",
    ):
        with machines.worker(at=path) as session:
            result = session.run([b"sh", b"-c", b'pwd -P; cat f; echo x >"$PWD/made"'])
            assert (result.stdout, result.exit_code) == (path + b"\none\n", 0), result.stderr
            assert [change.path for change in result.changeset.changes] == [b"made"]

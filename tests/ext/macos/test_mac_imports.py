"""What macOS does not have is not touched when modules are imported: a fresh interpreter, with all of it taken away."""

from __future__ import annotations

from pathlib import Path

from macbox import fake_sandbox_exec

from house import ROOT
from mac import on_a_mac

IMPORT = """
import mudroom
for found in pkgutil.walk_packages(mudroom.__path__, "mudroom."):
    if found.name.removeprefix("mudroom.") not in LINUX and not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except Exception as error:
            if type(error).__name__ != "VendorMissing":
                print(found.name, type(error).__name__, error)
print("done")
"""
NT = {f"ext.windows.stage.{path.stem}" for path in (ROOT / "src/mudroom/ext/windows/stage").glob("nt_*.py")}
LINUX = NT | {"ext.windows.sandbox.relay"}
"""Never imported on a Mac: they are twins for Windows, or run in a container there."""


def test_nothing_of_linux_alone_is_needed_to_import() -> None:
    assert on_a_mac(f"LINUX = {LINUX!r}\n{IMPORT}") == "done\n"


def test_a_profile_and_a_pipe_of_it() -> None:
    """What is used before anything is staged: the compiler, output that is captured, a copy in plain reads."""
    program = """
import tempfile
from mudroom.sandbox.client.capture import CapturedOutput
from mudroom.ext.macos.host import true_path
from mudroom.ext.macos.seatbelt import compile_profile
from mudroom.core.confinement.spec import Copy, SandboxSpec
with CapturedOutput(None, None, None, 10) as output:
    assert len(output.descriptors) == 3
spec = SandboxSpec(b"/p", Copy(b"/w"), b"/w", b"/h", b"/f/private", namespaces=False)
assert compile_profile(spec).startswith(b"(version 1)")
from mudroom.stage.copy import _copy_range
with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
    one.write(b"content")
    one.flush()
    _copy_range(one.fileno(), other.fileno(), 0, 7)
    assert other.read() == b"content"
from mudroom.sandbox.host.host import umask
os.umask(0o027)
real_open = open
def without_proc(path, *more, **named):
    if str(path).startswith("/proc"):
        raise FileNotFoundError(path)
    return real_open(path, *more, **named)
import builtins
builtins.open = without_proc
assert umask() == 0o027 and umask() == 0o027
print("done")
"""
    assert on_a_mac(program) == "done\n"


def test_a_copy_is_whole_where_holes_are_told_otherwise() -> None:
    """Every file that is staged in plain writes: data, holes, nothing; one that is shorter than it was is an error."""
    program = """
import tempfile
from mudroom.stage.copy import copy_content
for write in (lambda file: file.write(b"content"), lambda file: file.truncate(1 << 20), lambda file: None,
              lambda file: (file.write(b"a" * 70000), file.seek(1 << 21), file.write(b"b" * 70000))):
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
        write(one)
        one.flush()
        size = os.fstat(one.fileno()).st_size
        assert copy_content(one.fileno(), other.fileno(), size)
        one.seek(0)
        assert other.read() == one.read(), size
        try:
            copy_content(one.fileno(), other.fileno(), size + 1)
        except OSError as error:
            print(error.errno == errno.EIO, end=" ")
print("done")
"""
    assert on_a_mac(program) == "True True True True done\n"


def test_a_file_system_without_swaps_or_hard_links(tmp_path: Path) -> None:
    """It says ENOTSUP, which on macOS is not EOPNOTSUPP."""
    for name in ("one", "other"):
        (tmp_path / name).write_text(name)
    program = f"""
LIBSYSTEM["renameatx_np"] = not_supported
from mudroom.vault.apply.rename import exchange, move
os.link = lambda *_words, **_named: not_supported()
place = os.open({str(tmp_path)!r}, os.O_RDONLY)
exchange((place, b"one"), (place, b"other"))
move((place, b"one"), (place, b"third"))
print("done")
"""
    assert on_a_mac(program) == "done\n"
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {"third": "other", "other": "one"}


WHOLE = """
import pathlib, tempfile
from mudroom.core.settings import Settings
from mudroom.ext.macos.client import DarwinClient
from mudroom.ext.macos.platform import PLATFORM as DARWIN
from mudroom.session import Session
place = pathlib.Path({place!r})
client = DarwinClient(tool={tool!r})
before = (place / "project/old").read_text()
with Session.open(
    bytes(place / "project"), state=bytes(place / "state"), home=bytes(place / "home"), environ=os.environb,
    platform=DARWIN, client=client, settings=Settings(network="none"),
) as session:
    script = b"echo two >> old; rm gone; rm -r d; mkdir -p d/e; echo new > d/e/f; chmod 600 mode; ln -s old link"
    result = session.run([b"sh", b"-c", script], fork="f")
    assert (result.exit_code, result.stderr) == (0, b""), result
    print(*sorted(os.fsdecode(one.path) + " " + one.verb for one in result.changeset.changes), sep=", ")
    assert (place / "project/old").read_text() == before
    session.forks.checkpoint("f", "point")
    session.run([b"sh", b"-c", b"echo three >> old; rm link"], fork="f")
    session.forks.rollback("f", "point")
    print(session.run([b"cat", b"old"], fork="f").stdout)
    session.changes.apply("f")
    print((place / "project/old").read_bytes(), *sorted(one.name for one in (place / "project").iterdir()))
    session.changes.undo()
    print((place / "project/old").read_bytes(), *sorted(one.name for one in (place / "project").iterdir()))
client.close()
"""
EXPECTED = """\
d/e added, d/e/f added, d/x deleted, d/y deleted, gone deleted, link added, mode modified, old modified
b'one\\ntwo\\n'
b'one\\ntwo\\n' d link mode old
b'one\\n' d gone mode old
"""


def test_a_session_with_nothing_but_what_macos_has(tmp_path: Path) -> None:
    """Staged, changed, rolled back, applied and undone, by the calls that a Mac would get."""
    project = tmp_path / "project"
    for name in ("project/d/x", "home", "tool"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("old", "gone", "d/y", "mode"):
        (project / name).write_text("one\n")
    program = WHOLE.format(place=str(tmp_path), tool=fake_sandbox_exec(tmp_path / "tool"))
    assert on_a_mac(program) == EXPECTED

"""cargo's publish and yank wait for the apply, and its index tells of them meanwhile."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest
from crates import Crates, crate_body
from registry import tarball
from yard import Yard
from yard import yard as yard

from mudroom.cli.change.preview import held_lines
from mudroom.core.network.host_rules import HostRule, held
from mudroom.core.result import Result
from mudroom.ext.effects.publish import CRATE, download_url, index_of, is_crates, overlaid, parse_publish
from mudroom.session import Session
from tiers import each

pytestmark = [pytest.mark.both_users]

FILES = tarball({"Cargo.toml": "[package]\n", "src/lib.rs": ""}, "tiny-1.0.0")
PUBLISH = "curl -sS -w '\\n%{http_code}' -T body"


class Shop:
    def __init__(self, yard: Yard) -> None:
        self.yard, self.crates = yard, Crates(yard.root / "crates")
        self.port = yard.town.serve(self.crates.talk)
        self.url = self.crates.origin = f"http://registry.example:{self.port}"

    def session(self, *read: str) -> Session:
        return self.yard.session(held(HostRule("allow", "registry.example", (self.port,), private=True)), read=read)

    def publish(self, session: Session, version: str = "1.0.0", content: bytes = FILES) -> Result:
        (self.yard.project / "body").write_bytes(crate_body("tiny", version, content))
        return self.yard.run(session, f"{self.reads()}{PUBLISH} {self.url}/api/v1/crates/new")

    def reads(self) -> str:
        return f"curl -s -o old {self.url}/index/ti/ny/tiny; "


@pytest.fixture
def shop(yard: Yard) -> Iterator[Shop]:
    yield Shop(yard)


def test_a_crate_waits_is_in_the_index_is_sent_once_and_yanked_by_undo(shop: Shop) -> None:
    with shop.session() as session:
        done = shop.publish(session)
        text = "held: tiny 1.0.0 will be sent to the registry when the fork is applied"
        assert json.loads(done.stdout.splitlines()[0]) == {"ok": True, "warnings": {"other": [text]}}, done
        seen = shop.yard.run(
            session,
            f"curl -sS {shop.url}/index/ti/ny/tiny; curl -sS -o crate {shop.url}/dl/tiny/1.0.0/download; tar tf crate",
        )
        row, *files = seen.stdout.decode().splitlines()
        assert (json.loads(row)["vers"], json.loads(row)["yanked"], files[0]) == (
            "1.0.0",
            False,
            "tiny-1.0.0/Cargo.toml",
        )
        yanked = shop.yard.run(
            session,
            f"{shop.reads()}curl -sS -X DELETE {shop.url}/api/v1/crates/tiny/1.0.0/yank; {shop.reads()}cat old",
        )
        said, row = yanked.stdout.decode().replace("}{", "}\n{").splitlines()
        assert (json.loads(said)["ok"], json.loads(row)["yanked"]) == (True, True)
        assert not shop.crates.effects()
        lines = held_lines(session, "f")
        assert lines[0].endswith(
            "publish tiny 1.0.0 to "
            + shop.url
            + "/api/v1/crates/new: 2 files, 2 files not from the fork, first publish of this name"
        )
        assert "tiny 1.0.0 (yank)" in lines[3]
        landed = session.changes.apply("f", pushes=["publish:1", "publish:2"], exact=True)
        assert [(row.state, row.why) for row in landed.applied.pushes] == [("sent", "")] * 2
        assert (shop.crates.files, shop.crates.doubles) == ({"tiny-1.0.0": FILES}, 0)
        assert shop.crates.rows["tiny"][0]["yanked"]
        undone = session.changes.undo().pushes
        assert [row.state for row in undone] == ["undone", "undone"]
        assert shop.crates.rows["tiny"][0]["yanked"], "the yank was taken back, and then the publish by a yank"
        assert "its name is used up" in undone[1].said[0]


def cut() -> None:
    raise ConnectionError


@pytest.mark.parametrize(
    ("fault", "state", "again", "times"),
    [("before", "unknown", "sent", 2), ("after", "sent", "", 1), ("there", "refused", "", 0)],
)
def test_a_crate_whose_answer_is_lost_is_asked_about(
    shop: Shop, fault: str, state: str, again: str, times: int
) -> None:
    with shop.session() as session:
        shop.publish(session)
        nothing: Callable[[], None] = lambda: None  # noqa: E731
        shop.crates.before, shop.crates.after = (cut if fault == name else nothing for name in ("before", "after"))
        if fault == "there":
            shop.crates._publish({"name": "tiny", "vers": "1.0.0"}, b"other")
        (row,) = session.changes.apply("f", pushes=["publish:1"], exact=True).applied.pushes
        assert row.state == state, row
        shop.crates.before = shop.crates.after = nothing
        if again:
            (row,) = session.changes.apply("f", pushes=["publish:1"], exact=True).applied.pushes
            assert row.state == again, row
    assert (shop.crates.effects(), shop.crates.doubles) == (times, 0)


def test_an_error_that_a_registry_tells_with_status_200_is_a_refusal(shop: Shop) -> None:
    with shop.session() as session:
        yank = f"curl -sS -X DELETE {shop.url}/api/v1/crates/tiny/9.9.9/yank"
        refused = shop.yard.run(session, yank)
        assert b"a crate of a registry whose index this command has not read here" in refused.stdout
        shop.yard.run(session, shop.reads() + yank)
        (row,) = session.changes.apply("f", pushes=["publish:1"], exact=True).applied.pushes
        assert row.state == "refused" and "no such version" in row.why


@each(
    ("path", "expected"),
    [
        ("/index/config.json", "/index"),
        ("/config.json", ""),
        ("/index/ti/ny/tiny", "/index"),
        ("/1/a", ""),
        ("/x/2/ab", "/x"),
        ("/3/a/abc", ""),
        ("/Ti/ny/tiny", None),
        ("/ti/ne/tine", ""),
        ("/ti/xx/tiny", None),
        ("/tiny", None),
    ],
)
def test_an_index_is_known_by_what_is_read_of_it(path: str, expected: str | None) -> None:
    assert index_of(path) == expected


@each("body", [b"", b"\0" * 8, crate_body("tiny", "1.0.0", b""), crate_body("tiny", "1.0.0", b"x") + b"y",
               crate_body("../x", "1.0.0", b"x"), crate_body("tiny", "1/0", b"x"), b"\xff\xff\xff\xff{}"])  # fmt: skip
def test_a_crate_that_is_not_understood_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="a crate"):
        parse_publish("/api/v1/crates/new", CRATE + "/index", body)


def test_a_row_of_an_index_is_made_of_what_cargo_sends() -> None:
    dep = {"name": "serde", "version_req": "^1", "features": [], "optional": False, "default_features": True,
           "target": None, "kind": "normal", "registry": None, "explicit_name_in_toml": "s"}  # fmt: skip
    request = parse_publish("/api/v1/crates/new", CRATE, crate_body("tiny", "1.0.0", FILES, deps=[dep], links="z"))
    page, _kind = overlaid([request], "", b'{"vers":"0.9.0","yanked":true}\n')
    old, new = map(json.loads, page.splitlines())
    assert (old["vers"], new["deps"][0]["name"], new["deps"][0]["package"], new["links"]) == (
        "0.9.0",
        "s",
        "serde",
        "z",
    )
    assert download_url(b'{"dl":"https://s/c"}', request.publish, "2.0.0", "d") == "https://s/c/tiny/2.0.0/download"
    assert download_url(b'{"dl":"https://s/{prefix}/{crate}-{version}"}', request.publish, "2.0.0", "d").endswith(
        "/ti/ny/tiny-2.0.0"
    )
    assert is_crates("PUT", "/x/api/v1/crates/new") and not is_crates("PUT", "/api/v1/crates/tiny/1.0.0/yank")


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.limit(600)
@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_cargo_publishes_builds_on_it_and_yanks(shop: Shop) -> None:
    project = shop.yard.project
    for name, more in (("tiny", ""), ("user", '[dependencies]\ntiny = { version = "1", registry = "own" }\n')):
        (project / name / "src").mkdir(parents=True)
        (project / name / "src/lib.rs").write_text("pub fn one() -> u8 { 1 }\n" if not more else "pub use tiny::one;\n")
        head = f'[package]\nname = "{name}"\nversion = "1.0.0"\nedition = "2021"\ndescription = "x"\nlicense = "MIT"\n'
        (project / name / "Cargo.toml").write_text(f"{head}[workspace]\n{more}")
        (project / name / ".cargo").mkdir()
        (project / name / ".cargo/config.toml").write_text(f'[registries.own]\nindex = "sparse+{shop.url}/index/"\n')
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    with shop.session(sysroot) as session:
        cargo = f"export PATH={sysroot}/bin:$PATH CARGO_HOME=$PWD/../home; cargo"
        done = shop.yard.run(session, f"cd tiny; {cargo} publish --registry own --token x --allow-dirty")
        assert done.exit_code == 0, done.stderr
        assert b"held: tiny 1.0.0 will be sent to the registry" in done.stderr
        assert b"timed out" not in done.stderr, done.stderr
        built = shop.yard.run(session, f"cd user; {cargo} build")
        assert built.exit_code == 0, built.stderr
        yanked = shop.yard.run(
            session, f"cd user; {cargo} info tiny --registry own; {cargo} yank tiny@1.0.0 --registry own --token x"
        )
        assert yanked.exit_code == 0, yanked.stderr
        again = shop.yard.run(session, f"cd tiny; {cargo} publish --registry own --token x --allow-dirty")
        assert again.exit_code, "its version is there"
        assert not shop.crates.effects()
        names = [row.name for row in session.changes.pushes("f")]
        landed = session.changes.apply("f", pushes=names, exact=True)
        assert [(row.state, row.why) for row in landed.applied.pushes] == [("sent", "")] * 2
    assert list(shop.crates.files) == ["tiny-1.0.0"] and shop.crates.rows["tiny"][0]["yanked"]

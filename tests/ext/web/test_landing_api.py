"""Apply, undo and redo by the page's API: what is ticked lands, and nothing else does."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pageside import PageSide, changed, cut_off, pick

from conftest import Place, listing, tick
from mudroom.ext.web.state.job import JobMessage

LINES = "".join(f"{number}\n" for number in range(1, 31))


@pytest.fixture
def page(place: Place) -> PageSide:
    return PageSide(place)


def edited(text: str, **lines: str) -> str:
    """With these lines of it, by number, something else."""
    return "".join(lines.get(f"l{line.strip()}", line) for line in text.splitlines(keepends=True))


def names(place: Place) -> set[str]:
    return set(listing(place.project))


def refused(page: PageSide, *paths: str) -> str:
    body = {"reviewed": page.fingerprint("agent-1"), "files": [pick(path) for path in paths]}
    said: str = page.post(f"{page.project}/forks/agent-1/apply", body, status=400)["error"]
    return said


def test_all_of_a_fork(place: Place, page: PageSide) -> None:
    place.write("a.txt", "old\n")
    place.write("gone.txt", "gone\n")
    changed(place, "echo new > a.txt; rm gone.txt; mkdir d; echo x > d/x")
    landed = page.apply("agent-1")
    assert (landed["state"], landed["written"], landed["removed"], landed["remaining"]) == ("applied", 2, 1, 0)
    assert (place.project / "a.txt").read_text() == "new\n"
    assert names(place) == {"a.txt", "d", "d/x"}
    assert landed["undo"] == "u1"


def test_one_file_and_the_new_directory_that_it_is_in(place: Place, page: PageSide) -> None:
    changed(place, "mkdir -p d/e; echo x > d/x; echo y > d/e/y; echo z > d/e/z")
    landed = page.apply("agent-1", [pick("d/e/y")])
    assert (landed["state"], landed["written"]) == ("applied", 1)
    assert names(place) == {"d", "d/e", "d/e/y"}
    assert landed["remaining"] == 2
    rows = page.get(f"{page.project}/forks/agent-1/changes")["rows"]
    assert {row["path"] for row in rows} == {"d/x", "d/e/z"}


def test_the_mode_of_a_directory_is_not_all_that_is_in_it(place: Place, page: PageSide) -> None:
    (place.project / "d").mkdir(mode=0o755)
    place.write("d/x", "old\n")
    changed(place, "chmod 700 d; echo new > d/x")
    page.apply("agent-1", [pick("d")])
    assert (place.project / "d").stat().st_mode & 0o777 == 0o700
    assert (place.project / "d/x").read_text() == "old\n"


def test_a_directory_goes_when_all_that_was_in_it_goes(place: Place, page: PageSide) -> None:
    for name in ("d/x", "d/e/y", "k/x", "k/y"):
        place.write(name, name)
    changed(place, "rm -r d k")
    landed = page.apply("agent-1", [pick("d/x"), pick("d/e/y"), pick("k/x")])
    assert landed["conflicts"] == []
    assert names(place) == {"k", "k/y"}


def test_some_hunks_of_a_file(place: Place, page: PageSide) -> None:
    place.write("a.txt", LINES)
    changed(place, "sed -i -e s/^2$/two/ -e s/^15$/fifteen/ -e s/^28$/last/ a.txt")
    page.apply("agent-1", [pick("a.txt", blocks=[0, 2])])
    assert (place.project / "a.txt").read_text() == edited(LINES, l2="two\n", l28="last\n")
    page.apply("agent-1", [pick("a.txt", blocks=[0])])
    assert (place.project / "a.txt").read_text() == edited(LINES, l2="two\n", l15="fifteen\n", l28="last\n")


@pytest.mark.parametrize(
    ("choice", "text", "mode"),
    [
        ({"blocks": [], "mode": True}, "old\n", 0o755),
        ({"mode": False}, "new\n", 0o644),
        ({"blocks": [0], "mode": True}, "new\n", 0o755),
    ],
)
def test_the_mode_apart_from_the_text(
    place: Place, page: PageSide, choice: dict[str, Any], text: str, mode: int
) -> None:
    path = place.write("a.sh", "old\n")
    changed(place, "echo new > a.sh; chmod 755 a.sh")
    page.apply("agent-1", [pick("a.sh", **choice)])
    assert (path.read_text(), path.stat().st_mode & 0o777) == (text, mode)


def test_a_hunk_does_not_make_a_program_run_as_its_owner(place: Place, page: PageSide) -> None:
    place.write("tool", LINES)
    changed(place, "sed -i -e s/^2$/two/ -e s/^28$/last/ tool; chmod 4755 tool")
    (row,) = page.get(f"{page.project}/forks/agent-1/changes")["rows"]
    assert (row["mode"], row["hunks"]) == (["0644", "0755"], True)
    page.apply("agent-1", [pick("tool", blocks=[1], mode=False)])
    assert (place.project / "tool").read_text() == edited(LINES, l28="last\n")
    assert (place.project / "tool").stat().st_mode & 0o7777 == 0o644
    page.apply("agent-1", [pick("tool", blocks=[], mode=True)])
    assert (place.project / "tool").stat().st_mode & 0o7777 == 0o755


def test_a_rename_is_one_row(place: Place, page: PageSide) -> None:
    place.write("a.txt", LINES)
    changed(place, "mv a.txt b.txt; echo c > c.txt")
    page.apply("agent-1", [pick("b.txt")])
    assert names(place) == {"b.txt"}


def test_what_turns_into_a_directory_lands_whole_or_not_at_all(place: Place, page: PageSide) -> None:
    place.write("a", "file\n")
    changed(place, "rm a; mkdir a; echo x > a/x; echo y > a/y")
    for some in (["a"], ["a/x"], ["a/x", "a/y"]):
        assert "goes only together with" in refused(page, *some)
    assert (place.project / "a").read_text() == "file\n"
    page.apply("agent-1", [pick("a"), pick("a/x"), pick("a/y")])
    assert names(place) == {"a", "a/x", "a/y"}


def test_what_turns_from_a_directory_takes_along_what_was_in_it(place: Place, page: PageSide) -> None:
    place.write("a/x", "x\n")
    place.write("b", "b\n")
    changed(place, "rm -r a b; echo file > a")
    assert refused(page, "a") == "a goes only together with a/x"
    assert names(place) == {"a", "a/x", "b"}
    page.apply("agent-1", [pick("a"), pick("a/x")])
    assert names(place) == {"a", "b"}
    assert (place.project / "a").read_text() == "file\n"


def test_a_name_that_is_no_text(place: Place, page: PageSide) -> None:
    changed(place, "printf x > \"$(printf 'odd\\377\\nname')\"; echo y > y")
    landed = page.apply("agent-1", [pick(b"odd\xff\nname")])
    assert landed["written"] == 1
    assert os.listdir(os.fsencode(place.project)) == [b"odd\xff\nname"]


def test_hooks_land_only_if_they_are_chosen_one_by_one(place: Place, page: PageSide) -> None:
    place.write(".git/HEAD", "ref: refs/heads/main\n")
    for name in ("objects", "refs", "hooks"):
        (place.project / ".git" / name).mkdir()
    changed(place, "echo x > .git/hooks/pre-commit; echo y > .git/hooks/pre-push; echo a > a")
    landed = page.apply("agent-1")
    assert names(place) >= {"a"} and not names(place) & {".git/hooks/pre-commit", ".git/hooks/pre-push"}
    assert landed["withheld"] == [".git/hooks/pre-commit", ".git/hooks/pre-push"]
    page.apply("agent-1", [pick(".git/hooks/pre-push")])
    assert not (place.project / ".git/hooks/pre-commit").exists()
    assert (place.project / ".git/hooks/pre-push").read_text() == "y\n"


def test_a_repository_is_applied_as_a_whole_or_left_out(place: Place, page: PageSide) -> None:
    config = "-c user.name=T -c user.email=t@example.org -c init.defaultBranch=main"
    commit = f"git {config} add -A; git {config} commit -qm"
    subprocess.run(["sh", "-ec", f"git {config} init -q; echo b > b; {commit} one"], cwd=place.project, check=True)
    main = place.project / ".git/refs/heads/main"
    before, settings = main.read_text(), (place.project / ".git/config").read_text()
    changed(place, f"echo a > a; echo b2 > b; {commit} two; echo x >> .git/config")
    some = [pick("a"), pick(".git/refs/heads/main")]
    landed = page.apply("agent-1", some)
    assert (main.read_text(), landed["written"]) == (before, 1)
    page.apply("agent-1", git=True)
    assert main.read_text() != before
    log = ["git", "log", "--format=%s"]
    assert subprocess.run(log, cwd=place.project, capture_output=True, text=True, check=True).stdout.split() == [
        "two",
        "one",
    ]
    assert (place.project / ".git/config").read_text() == settings


def test_conflict_markers(place: Place, page: PageSide) -> None:
    place.write("a", "old\n")
    changed(place, "echo theirs > a")
    tick()
    place.write("a", "ours\n")
    landed = page.apply("agent-1", markers=True)
    assert (landed["state"], landed["written"]) == ("conflicts", 1)
    assert (place.project / "a").read_text() == (
        "<<<<<<< project\nours\n||||||| original\nold\n=======\ntheirs\n>>>>>>> agent-1\n"
    )


def test_a_merge_is_told(place: Place, page: PageSide) -> None:
    place.write("a", LINES)
    changed(place, "sed -i s/^2$/two/ a")
    tick()
    place.write("a", edited(LINES, l28="last\n"))
    landed = page.apply("agent-1")
    assert (landed["state"], landed["merged"]) == ("applied", ["a"])
    assert (place.project / "a").read_text() == edited(LINES, l2="two\n", l28="last\n")


def test_what_is_kept_of_the_projects_own_is_no_merge(place: Place, page: PageSide) -> None:
    place.write("a", "old\n")
    changed(place, "echo theirs > a")
    tick()
    place.write("a", "ours\n")
    session = place.session()
    (conflict,) = session.changes.conflicts("agent-1")
    session.changes.decide("agent-1", conflict, "ours")
    landed = page.apply("agent-1")
    assert (landed["state"], landed["merged"], landed["kept"], landed["undo"]) == ("applied", [], ["a"], "u1")
    assert page.job(f"{page.project}/undo", {"apply": "u1"})["landed"]["remarks"] == []
    assert [one.path for one in place.session().changes.of("agent-1").changes] == [b"a"]


def test_copies_of_what_is_replaced(place: Place, page: PageSide) -> None:
    place.write("a.txt", "old\n")
    changed(place, "echo new > a.txt")
    page.apply("agent-1", backups=True)
    assert (place.project / "a.txt.bak").read_text() == "old\n"


# --- what cannot be ---


def test_another_tab_has_brought_in_a_part(place: Place, page: PageSide) -> None:
    """The numbers of its blocks are others now."""
    place.write("f", LINES)
    changed(place, "sed -i -e 's/^5$/A/' -e 's/^15$/B/' -e 's/^25$/C/' f")
    seen = page.fingerprint("agent-1")
    assert page.apply("agent-1", [pick("f", blocks=[0])], reviewed=seen)["state"] == "applied"
    asked = {"reviewed": seen, "files": [pick("f", blocks=[1])]}
    assert page.post(f"{page.project}/forks/agent-1/apply", asked, status=409)["code"] == "moved"
    assert (place.project / "f").read_text() == edited(LINES, l5="A\n")
    assert page.apply("agent-1", [pick("f", blocks=[0])])["state"] == "applied", "looked at again"
    assert (place.project / "f").read_text() == edited(LINES, l5="A\n", l15="B\n")


def test_a_fork_that_has_moved_since_the_look(place: Place, page: PageSide) -> None:
    changed(place, "echo 1 > a")
    looked = page.fingerprint("agent-1")
    changed(place, "echo 2 > a")
    refused = page.post(f"{page.project}/forks/agent-1/apply", {"reviewed": looked}, status=409)
    assert (refused["code"], refused["error"]) == (
        "moved", "the fork has changed since it was reviewed; nothing was applied",
    )  # fmt: skip
    assert names(place) == set()


def test_a_fork_that_moves_after_the_answer(place: Place, page: PageSide) -> None:
    """Between the answer to the request and the job's turn: the job is held to the same look."""
    changed(place, "echo 1 > a")
    body = {"reviewed": page.fingerprint("agent-1")}
    start = page.server.jobs.start

    def later(project: str, fork: str, what: Any, work: Any) -> Any:
        changed(place, "echo 2 > a")
        return start(project, fork, what, work)

    page.server.jobs.start = later  # type: ignore[method-assign]
    job = page.job(f"{page.project}/forks/agent-1/apply", body)
    assert (job["state"], job["problem"]["code"]) == ("failed", "moved")
    assert names(place) == set()


def test_a_fork_that_is_gone(place: Place, page: PageSide) -> None:
    changed(place, "echo 1 > a")
    page.ask("DELETE", f"{page.project}/forks/agent-1")
    refused = page.post(f"{page.project}/forks/agent-1/apply", {"reviewed": "x"}, status=404)
    assert refused["error"] == "there is no fork named agent-1"
    assert page.post("/projects/nothing/forks/a/apply", {"reviewed": "x"}, status=404)["code"] == "not-found"


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ([], "nothing was chosen"),
        ([pick("other")], "the fork has no change at other"),
        ([pick("../../etc/passwd")], "the fork has no change at ../../etc/passwd"),
        ([pick("a"), pick("a")], "a is chosen twice"),
        ([pick("a", blocks=[1])], "a has no such block: it has 1, from 0"),
        ([pick("a", blocks=[-1])], "a has no such block: it has 1, from 0"),
        ([pick("a", blocks=[])], "nothing was chosen"),
        ([pick("b", blocks=[0])], "b can only be chosen as a whole"),
        ([pick("gone", blocks=[])], "gone can only be chosen as a whole"),
        ([pick("d", blocks=[])], "d can only be chosen as a whole"),
        ([{"id": "!"}], "that is no id of a path"),
        ([{"id": ""}], "that is no id of a path"),
    ],
)
def test_a_choice_that_cannot_be(place: Place, page: PageSide, files: list[Any], error: str) -> None:
    place.write("a", "old\n")
    place.write("gone", "old\n")
    changed(place, "echo new > a; printf 'x\\0y' > b; rm gone; mkdir d")
    before = listing(place.project)
    body = {"reviewed": page.fingerprint("agent-1"), "files": files}
    refused = page.post(f"{page.project}/forks/agent-1/apply", body, status=400)
    assert refused["error"] == error
    assert listing(place.project) == before


def test_a_fork_without_changes(place: Place, page: PageSide) -> None:
    changed(place, "true")
    body = {"reviewed": page.fingerprint("agent-1")}
    assert page.post(f"{page.project}/forks/agent-1/apply", body, status=400)["error"] == "agent-1 holds no changes"


def test_nobody_is_waited_for(place: Place, page: PageSide) -> None:
    changed(place, "echo 1 > a")
    body = {"reviewed": page.fingerprint("agent-1")}
    session = place.session()
    with session.alone("`mudroom run` (process 1)"):
        job = page.job(f"{page.project}/forks/agent-1/apply", body)
        assert (job["state"], job["problem"]["code"]) == ("failed", "busy")
        assert job["problem"]["error"] == "`mudroom run` (process 1) is at work in this project"
    assert page.landed(f"{page.project}/forks/agent-1/apply", body)["written"] == 1


def test_a_fork_is_looked_at_although_its_apply_was_cut_off(
    place: Place, page: PageSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("a", "1\n2\n")
    changed(place, "echo 3 >> a")
    cut_off(place, monkeypatch)
    place.write("a", "0\n1\n2\n")
    found = page.get(f"{page.project}/forks/agent-1/changes")
    assert ([row["path"] for row in found["rows"]], found["drift"], found["conflicts"]) == (["a"], 1, None)


@pytest.mark.parametrize(("what", "state", "there"), [("undo", "undone", False), ("redo", "redone", True)])
def test_what_was_cut_off_is_finished_or_taken_back(
    place: Place, page: PageSide, monkeypatch: pytest.MonkeyPatch, what: str, state: str, there: bool
) -> None:
    place.write("b", "old\n")
    changed(place, "echo 1 > a; echo 2 > b; rm -f c")
    cut_off(place, monkeypatch)
    assert page.get(page.project)["applies"][0]["state"] == "interrupted"
    landed = page.landed(f"{page.project}/{what}", {"apply": "u1"})
    assert (landed["state"], landed["undo"]) == (state, "u1")
    assert landed["remarks"][0]["text"] == "was cut off in the middle; it is finished now"
    assert ((place.project / "a").exists(), (place.project / "b").read_text()) == (there, "2\n" if there else "old\n")


def test_what_had_not_begun_is_taken_back(place: Place, page: PageSide, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(place, "echo 1 > a")
    cut_off(place, monkeypatch, begun=False)
    assert page.get(page.project)["applies"][0]["state"] == "deferred"
    assert page.post(f"{page.project}/redo", {"apply": "u1"}, status=409)["code"] == "decided"
    assert page.landed(f"{page.project}/undo", {"apply": "u1"})["state"] == "undone"
    assert page.get(page.project)["applies"] == []
    assert page.apply("agent-1")["written"] == 1


def test_a_command_that_runs_in_the_fork(place: Place, page: PageSide) -> None:
    changed(place, "echo 1 > a")
    body = {"reviewed": page.fingerprint("agent-1")}
    with place.session().vault.fork("agent-1").lock("a command"):
        refused = page.post(f"{page.project}/forks/agent-1/apply", body, status=409)
    assert (refused["code"], refused["error"]) == ("busy", "a command is running in agent-1")


def test_two_tabs_apply_the_same_at_once(place: Place, page: PageSide) -> None:
    changed(place, "echo 1 > a; echo 2 > b")
    body = {"reviewed": page.fingerprint("agent-1")}
    path = f"{page.project}/forks/agent-1/apply"
    ready = threading.Barrier(4)

    def apply(_number: int) -> str:
        ready.wait()
        status, answer = page.try_("POST", path, body)
        if status != 202:
            return str(answer["code"])
        job = page.ended(answer)
        return "applied" if job["state"] == "done" else str(job["problem"]["code"])

    with ThreadPoolExecutor(4) as pool:
        found = sorted(pool.map(apply, range(4)))
    assert found.count("applied") == 1, found
    assert set(found) <= {"applied", "busy", "moved", "bad-request"}
    assert names(place) == {"a", "b"}
    assert [one["id"] for one in page.get(page.project)["applies"]] == ["u1"]


# --- and back ---


def test_there_and_back_and_there_again(place: Place, page: PageSide) -> None:
    place.write("a.txt", "old\n")
    changed(place, "echo new > a.txt; echo b > b")
    before = listing(place.project)
    page.apply("agent-1")
    after = listing(place.project)
    undone = page.landed(f"{page.project}/undo", {})
    assert (undone["state"], undone["undo"], undone["written"], undone["removed"]) == ("undone", "u1", 1, 1)
    assert listing(place.project) == before
    assert page.landed(f"{page.project}/redo", {"apply": "u1"})["state"] == "redone"
    assert listing(place.project) == after


def test_what_was_edited_since_stays(place: Place, page: PageSide) -> None:
    place.write("a.txt", "old\n")
    changed(place, "echo new > a.txt; echo b > b")
    page.apply("agent-1")
    place.write("a.txt", "mine\n")
    undone = page.landed(f"{page.project}/undo", {"apply": "u1"})
    assert undone["state"] == "conflicts"
    assert [one["path"] for one in undone["conflicts"]] == ["a.txt"]
    assert (place.project / "a.txt").read_text() == "mine\n"
    assert not (place.project / "b").exists()
    assert page.get(page.project)["applies"][0]["refused"]
    none = page.post(f"{page.project}/undo/decide", {"apply": "u7"}, status=404)
    assert none["error"] == "the undo of u7 left nothing to decide"
    fork = page.post(f"{page.project}/undo/decide", {"apply": "u1"}, status=200)["fork"]
    assert [one["path"] for one in page.get(f"{page.project}/forks/{fork}/conflicts")["conflicts"]] == ["a.txt"]


def test_what_cannot_be_taken_back(place: Place, page: PageSide) -> None:
    changed(place, "echo b > b")
    assert page.post(f"{page.project}/undo", {}, status=400)["error"] == "there is nothing to undo in this project"
    page.apply("agent-1")
    assert page.post(f"{page.project}/redo", {}, status=400)["error"] == "there is nothing to redo in this project"
    assert page.post(f"{page.project}/undo", {"apply": "u7"}, status=404)["code"] == "not-found"
    assert page.post(f"{page.project}/undo", {"apply": "../u1"}, status=404)["code"] == "not-found"
    page.landed(f"{page.project}/undo", {"apply": "u1"})
    refused = page.post(f"{page.project}/undo", {"apply": "u1"}, status=409)
    assert (refused["code"], refused["error"]) == ("decided", "u1 is undone already")


# --- the verify command ---


def verified_by(place: Place, command: str, when: str = "always") -> None:
    place.write(".mudroom/policy.yaml", f"verify:\n  command: {command}\n  when: {when}\n")


def test_a_result_that_does_not_pass_is_not_applied(place: Place, page: PageSide) -> None:
    verified_by(place, "[sh, -c, 'echo looking; cat a; echo bad >&2; exit 3']")
    changed(place, "echo 1 > a")
    job = page.job(f"{page.project}/forks/agent-1/apply", {"reviewed": page.fingerprint("agent-1")})
    landed = job["landed"]
    assert (landed["state"], landed["undo"], landed["remaining"]) == ("unverified", "", 1)
    assert landed["verified"] == "sh -c 'echo looking; cat a; echo bad >&2; exit 3' exited with 3"
    assert sorted(job["output"].splitlines()) == ["1", "bad", "looking"]
    assert not (place.project / "a").exists()
    assert [fork["name"] for fork in page.get(page.project)["forks"]] == ["agent-1"]


def test_what_the_verify_command_prints_comes_as_it_is_printed(place: Place, page: PageSide) -> None:
    """It prints, then waits for a minute, unless somebody who has heard that ends the waiting."""
    wait = f"sleep 61.{os.getpid()}"
    verified_by(place, f"[sh, -c, 'exec 2>&-; echo first; {wait}; echo second']")
    changed(place, "echo 1 > a")
    told: list[tuple[str, dict[str, Any]]] = []

    def tell(kind: str, data: dict[str, Any]) -> None:
        told.append((kind, data))
        if kind == "output" and "first" in data["text"]:
            end(wait)

    page.server.hub.tell = tell  # type: ignore[method-assign]
    job = page.job(f"{page.project}/forks/agent-1/apply", {"reviewed": page.fingerprint("agent-1")})
    assert (job["state"], job["output"]) == ("done", "first\nsecond\n"), job
    assert job["landed"]["verified"].endswith(" succeeded")
    phases = [data["phase"] for kind, data in told if kind == "job"]
    assert phases[0] == "comparing with the project"
    assert phases[1].startswith("verifying: sh -c ")
    assert "applying" in phases
    assert (place.project / "a").exists()


def test_a_character_that_comes_in_two_pieces(page: PageSide) -> None:
    def work(told: JobMessage) -> dict[str, Any]:
        told.output("é".encode()[:1])
        told.output("é".encode()[1:] + b"\xff")
        return {}

    job = page.server.jobs.start("p", "", "measure", work)
    assert page.server.jobs.rest(60)
    assert page.get(f"/jobs/{job.id}")["output"] == "é\ufffd"


def end(command: str) -> None:
    """A process that a sandbox of ours has: seen from outside."""
    wanted, ended = command.replace(" ", "\0").encode() + b"\0", False
    while not ended:  # the shell prints before it starts that
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if place.read_bytes() == wanted:
                    os.kill(int(place.parent.name), signal.SIGKILL)
                    ended = True


def test_jobs_of_a_project(place: Place, page: PageSide) -> None:
    changed(place, "echo 1 > a")
    page.apply("agent-1")
    page.landed(f"{page.project}/undo", {})
    found = page.get(f"{page.project}/jobs")
    assert [(job["what"], job["state"], job["fork"]) for job in found] == [
        ("apply", "done", "agent-1"), ("undo", "done", ""),
    ]  # fmt: skip
    assert page.get("/projects/other/jobs") == []
    assert page.server.jobs.rest(0)


def test_a_job_of_before_a_restart(place: Place, page: PageSide) -> None:
    changed(place, "echo 1 > a")
    job = page.job(f"{page.project}/forks/agent-1/apply", {"reviewed": page.fingerprint("agent-1")})
    found = PageSide(place).get(f"/jobs/{job['id']}", status=404)
    assert found["hint"] == "the server was started anew, or it was long ago"

"""A day with git: a user and an agent in one project, by whole processes."""

from __future__ import annotations

from conftest import Place
from test_reproductions import User


def test_a_day(place: Place) -> None:
    place.write("app.py", "".join(f"line {number}\n" for number in range(20)))
    place.write("server.key", "tracked\n")
    user = User(place)
    place.write(".gitignore", ".env\n")
    place.write(".env", "TOKEN=1\n")
    user.sh("git add -A; git commit -qm start; git tag v1")

    # morning: the agent commits on a branch and leaves a stash; the user commits meanwhile
    user.fork("git switch -qc feature; sed -i '2s/.*/feature/' app.py; git commit -qam feature")
    user.sh("sed -i '18s/.*/fix/' app.py; git commit -qam fix")
    user.fork(
        'echo idea >> app.py; git stash push -qm idea; git status --porcelain; test -z "$(git status --porcelain)"'
    )
    user.apply("--commits")
    assert user.sh("git log --format=%s mudroom/f").split() == ["feature", "start"]
    assert user.sh("git stash list").count("idea") == 1
    assert user.sh("git log --format=%s").split() == ["fix", "start"]
    user.sh("git merge -q --no-edit mudroom/f")
    assert "feature\n" in (place.project / "app.py").read_text() and "fix\n" in (place.project / "app.py").read_text()
    user.require_sound()
    assert user.mudroom("discard", "f").returncode == 0

    # noon: a rebase and a merge in a fork land at once; the user takes them back, and wants them after all
    user.sh("git switch -qc topic v1; echo topic > topic; git add topic; git commit -qm topic; git switch -q main")
    user.fork("git switch -q topic; git rebase -q main; git switch -q main; git merge -q --no-ff --no-edit topic", "g")
    before = user.sh("git show-ref; git ls-files -s")
    user.apply("--git", name="g")
    after = user.sh("git show-ref; git ls-files -s")
    assert (place.project / "topic").read_text() == "topic\n"
    assert user.sh("git status --porcelain") == ""
    user.sh("git status; git log --oneline --all")
    user.undo()
    assert user.sh("git show-ref; git ls-files -s") == before
    assert user.mudroom("redo").returncode == 0
    assert user.sh("git show-ref; git ls-files -s") == after
    user.require_sound()

    # afternoon: the user has staged and unstaged work while the agent's commits land
    place.write("staged.txt", "staged\n")
    user.sh("git add staged.txt")
    place.write("notes.txt", "untracked\n")
    user.fork("echo done >> app.py; git commit -qm done app.py", "h")
    user.apply("--git", name="h")
    assert user.sh("git log -1 --format=%s").strip() == "done"
    assert user.sh("git status --porcelain").splitlines() == ["A  staged.txt", "?? notes.txt"]

    # evening: the agent amends what the user has by now; nothing is overwritten
    user.fork("git commit -q --amend -m 'done, better'", "i")
    user.sh("git commit -qm staged")
    done = user.mudroom("apply", "i", "--yes", "--git")
    assert done.returncode in (0, 3), done.stderr
    assert user.sh("git log -2 --format=%s").splitlines() == ["staged", "done"]
    assert "done, better" in user.sh("git log --format=%s mudroom/i")
    user.sh("git stash push -qu; git stash pop -q; git gc -q")
    assert (place.project / "server.key").read_text() == user.sh("git show HEAD:server.key") == "tracked\n"
    assert (place.project / ".env").read_text() == "TOKEN=1\n"
    user.require_sound()

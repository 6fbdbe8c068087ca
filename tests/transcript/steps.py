"""What the agent does, one command after another, and what has to come of each."""

from __future__ import annotations

from typing import NamedTuple

from mudroom.core.command.verdict import Action

AGENT = "coder"
FORK = "refactor"
PYTHON = "/usr/bin/python3"
TESTS = f"{PYTHON} -B -m unittest -q tests.test_ledger"
COMMIT = "git -c user.name=coder -c user.email=coder@example.org commit -qam"


class Command(NamedTuple):
    """One of the agent's, in its fork."""

    line: str
    """For bash."""
    action: Action
    exit_code: int = 0
    why: str = ""


class Verb(NamedTuple):
    """One of mudroom's, by the agent's runtime or by the user. ``{ID}`` is the question that waits."""

    words: tuple[str, ...]
    who: str = "the user"
    exit_code: int = 0
    why: str = ""


CSV = """\
cat > ledger/formats/csv.py <<'END'
\"\"\"Accounts as comma-separated values.\"\"\"


def as_csv(accounts):
    rows = ["name,balance"] + [f"{account.name},{account.balance()}" for account in accounts]
    return "\\n".join(rows)
END"""
SPLIT = f"""{PYTHON} - <<'END'
import pathlib, re
path = pathlib.Path("ledger/render.py")
text = re.sub(r"def as_csv.*?\\n\\n\\n", "", path.read_text(), flags=re.S)
path.write_text(text.replace("from ledger.account", "from ledger.formats.csv import as_csv\\nfrom ledger.account"))
END"""

STEPS: tuple[Command | Verb, ...] = (
    Verb(("fork", "new", FORK), who="the runtime"),
    Command("git status --short", "allow"),
    Command("git log --oneline", "allow"),
    Command("ls -R ledger tests", "allow"),
    Command("grep -rn 'ledger.report' --include=*.py --include=*.md .", "allow"),
    Command("cat ledger/report.py", "allow"),
    Command(TESTS, "allow_with_checkpoint", why="what runs code cannot be told: it gets a checkpoint"),
    Command("git switch -q -c refactor", "allow"),
    Command("git mv ledger/report.py ledger/render.py", "allow"),
    Command("sed -i 's/ledger.report/ledger.render/' tests/test_ledger.py README.md", "allow"),
    Command("grep -rn 'ledger.report' --include=*.py --include=*.md .", "allow", exit_code=1),
    Command(TESTS, "allow_with_checkpoint"),
    Command(f"git add -A && {COMMIT} 'Reports are rendered'", "allow"),
    Command("mkdir -p ledger/formats && touch ledger/formats/__init__.py", "allow"),
    Command(CSV, "allow"),
    Command(SPLIT, "allow_with_checkpoint"),
    Command(TESTS, "allow_with_checkpoint"),
    Command("git diff --stat", "allow"),
    Command("rm -rf ledger", "allow_with_checkpoint", why="meant: ledger/__pycache__"),
    Command(TESTS, "allow_with_checkpoint", exit_code=1, why="everything is gone"),
    Verb(("checkpoint", "--fork", FORK), who="the runtime"),
    Verb(("rollback", "before-rm-rf-ledger-1", "--fork", FORK, "--yes"), who="the runtime"),
    Command(TESTS, "allow_with_checkpoint"),
    Command("find . -name __pycache__ -prune -exec rm -rf {} +", "allow_with_checkpoint"),
    Command(f"git add -A && {COMMIT} 'CSV is a format of its own'", "allow"),
    Command("git push --force origin refactor", "deny", exit_code=126, why="the team's rule"),
    Command("curl -sS https://example.com/install.sh", "allow", exit_code=35, why="allowed to try; the gate says no"),
    Command("sudo chown -R root: .", "require_approval", exit_code=126, why="nobody has approved it"),
    Command("git tag v2", "require_approval", exit_code=126, why="a rule: a person has to say so"),
    Verb(("approve",)),
    Verb(("approve", "{ID}")),
    Command("git tag v2", "require_approval", why="as approved, once"),
    Command("git log --oneline --decorate", "allow"),
    Command(f"cat README.md && {TESTS}", "allow_with_checkpoint"),
    Command("git status --short", "allow"),
    Verb(("diff", FORK, "--stat"), who="the runtime"),
    Verb(("diff", FORK, "README.md", "tests")),
    Verb(("apply", FORK, "--yes")),
    Verb(("log", "verify")),
)

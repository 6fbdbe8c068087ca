"""Everyday lines of agents and people, made from the shapes of everyday.txt.

The file has sections (`## git`) and shapes (`# allow: git log --oneline -⟨3¦5⟩ -- «src»`). A shape is written by hand,
with the action that a person would find right at level 1. `⟨a¦b⟩` is one of some texts, `«src»` a word of `WORDS`, `␤`
the end of a line. A shape gets at most `MOST` lines; no line is there twice. The choice is drawn from the shape's own
text, so that a new shape does not change the lines of others.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Literal, NamedTuple

Wanted = Literal["allow", "checkpoint", "ask"]
MOST, TRIES = 9, 60
WORDS = {
    name: texts.split()
    for name, texts in {
        "src": "src/app.py src/main.py lib/utils.py app/models.py src/api/routes.py core/config.py src/index.ts"
        " src/server.ts src/components/App.tsx internal/db/store.go src/lib.rs app/views.py scripts/build.py",
        "dir": "src tests lib app docs scripts internal src/api src/components packages/core",
        "test": "tests/test_app.py tests/unit/test_models.py tests/api/test_routes.py tests/test_cli.py",
        "tstest": "src/App.test.tsx tests/api.spec.ts src/utils/date.test.ts e2e/login.spec.ts",
        "ts": "src/index.ts src/server.ts scripts/seed.ts src/components/App.tsx",
        "js": "server.js index.js scripts/migrate.js lib/parse.js",
        "go": "main.go internal/db/store.go cmd/api/main.go",
        "rs": "src/lib.rs src/main.rs src/parser.rs",
        "c": "src/main.c lib/buffer.c test.c",
        "cpp": "src/main.cpp lib/parser.cpp include/tree.hpp",
        "java": "src/Main.java src/App.java",
        "sh": "run.sh scripts/deploy.sh build.sh scripts/test.sh setup.sh",
        "md": "README.md docs/guide.md CHANGELOG.md NOTES.md",
        "txt": "notes.txt requirements.txt names.txt words.txt todo.txt",
        "csv": "data.csv data/users.csv out/report.csv",
        "json": "package.json data.json config/default.json out/result.json tsconfig.json",
        "conf": "pyproject.toml package.json tsconfig.json Makefile Dockerfile docker-compose.yml .gitignore",
        "log": "app.log logs/server.log build.log out.log",
        "bin": "build/app dist/tool target/release/shop bin/run",
        "ext": "py ts tsx go rs js json md",
        "sym": "parse_config handleSubmit useAuth load_user Client validate createServer render_page OrderStatus retry",
        "cls": "Order User Config Parser HttpClient Session",
        "word": "shop report worker api users cache web billing search demo",
        "branch": "main master develop origin/main",
        "newbranch": "fix/login feature/search chore/deps fix-flaky-test",
        "sha": "a1b2c3d 9f8e7d6 HEAD~1 4c5d6e7",
        "repo": "pallets/flask facebook/react tokio-rs/tokio acme/shop",
        "proj": "/home/dev/shop",
        "pkg": "requests numpy flask pydantic httpx pytest-cov",
        "npmpkg": "react zod express lodash @types/node vite axios",
        "crate": "serde tokio anyhow clap reqwest",
        "gomod": "github.com/stretchr/testify github.com/spf13/cobra golang.org/x/sync",
        "deb": "jq ripgrep build-essential libpq-dev",
        "host": "example.com api.example.com files.example.org",
        "port": "3000 8000 8080 5173 5432",
        "pid": "1234 40112 98765",
        "num": "12 128 4711",
        "ns": "default staging kube-system",
    }.items()
}
WORDS["msg"] = [
    "Fix off-by-one in pagination", "Add retry to client", "refactor: split the parser",
    "feat(api): add search endpoint", "Update dependencies", "fix: handle empty input",
]  # fmt: skip


def line_of(shape: str, draw: random.Random) -> str:
    """Return a line of the shape."""
    shape = re.sub("⟨([^⟩]*)⟩", lambda match: draw.choice(match[1].split("¦")), shape)
    shape = re.sub("«(\\w+)»", lambda match: draw.choice(WORDS[match[1]]) if match[1] in WORDS else match[0], shape)
    return re.sub("«([^»]*)»", lambda match: draw.choice(("", match[1])), shape).rstrip()


class EverydayLine(NamedTuple):
    wanted: Wanted
    shape: str
    line: str


def corpus() -> list[EverydayLine]:
    """Return all lines, the same each time."""
    rows: dict[str, EverydayLine] = {}
    for row in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if (found := re.fullmatch("# (allow|checkpoint|ask): (.*)", row)) is None:
            continue
        wanted, shape = found.groups()
        draw, most = random.Random(shape), len(rows) + MOST
        for _try in range(TRIES):
            line = line_of(shape, draw)
            if len(rows) < most:
                rows.setdefault(line, EverydayLine(wanted, shape, line))  # type: ignore[arg-type]
    return list(rows.values())

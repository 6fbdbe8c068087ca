"""Random git commands, as lines for ``sh``. The same for the user and in a fork; each may fail."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from git_history import BINARY, LINK, PROGRAM, SECRETS, TEXTS, UNTRACKED_SECRET

FINISH = (
    "git add -A; git rebase --continue || git rebase --skip || git rebase --abort;"
    " git cherry-pick --continue || git cherry-pick --abort; git revert --abort; git merge --abort;"
    " git commit -qm finished"
)
"""Ends an operation that a conflict has stopped."""
COLLECTING = re.compile(r"git (gc|repack|prune)")
"""Commands that remove directories of objects."""
PRUNING = re.compile(r"prune=now|repack|git prune")
"""Commands that remove objects which no ref of the project reaches, though a fork may need them."""
COMMANDS = rf"""
6 mkdir -p $(dirname {{path}}); echo {{new line}} >> {{path}}
5 if test -s {{path}}; then sed '{{number}}s/.*/{{new line}}/' {{path}} > .sed.tmp; cat .sed.tmp > {{path}}; rm -f .sed.tmp; fi
3 mkdir -p src new/folder; echo {{new text}} > {{.|src|new/folder}}/{{new file}}.txt
2 mkdir -p data; printf 'b\000{{new binary}}' > {BINARY}
2 chmod {{+x|-x}} {{{PROGRAM}|{{text}}}}
1 ln -sfn {{text}} {LINK}
2 rm -f {{{{text}}|{BINARY}|{LINK}}}
2 mv {{text}} {{new moved}}.txt
5 git add {{-A|-A|-u|{{text}}|-f {UNTRACKED_SECRET}}}
9 mkdir -p $(dirname {{path}}); echo {{new line}} >> {{path}}; git {{add -A; git commit -qm|commit -qam|add -u; git commit -qm}} {{new c}}
4 git commit -qm {{new c}}
3 git commit -q --amend {{-a |}}-m {{new amended}}
4 git branch {{|-f }}{{{{new b}}|{{new dir/b}}|{{branch}}}} {{commit}}
2 git branch -D {{branch}}
1 git branch -m {{branch}} {{new renamed}}
5 git switch -q {{{{branch}}|{{branch}}|-c {{new s}}|-c {{new s}} {{commit}}|--detach {{commit}}|-f {{branch}}}}
5 git merge -q {{||--no-ff |--squash |-X ours }}{{commit}}
3 git rebase -q {{{{commit}}|HEAD~2 --exec true|--onto old HEAD~2}}
3 git cherry-pick {{commit}}
2 git revert --no-edit HEAD
7 {FINISH}
4 git stash push -q{{| -u| -m {{new m}}| -a}}
4 git stash {{pop -q|apply -q|drop -q|pop -q --index}}
4 git reset -q {{--soft|--mixed|--hard|--hard|--keep}} {{HEAD|HEAD~1|{{commit}}}}
3 git restore {{--staged ||-s HEAD~1 }}{{.|{{file}}}}
4 git tag {{{{new t}} {{commit}}|-a -m t {{new a}} {{commit}}|-f {{tag}} {{commit}}|-d {{tag}}}}
2 git notes add -f -m {{new note}} {{commit}}
2 git rm -rq {{|--cached |-f }}{{file}}
2 git mv {{file}} {{new moved}}
2 git worktree {{add -q {{new wt}}|add -q --detach {{new wt}}|add -q -b {{new w}} {{new wt}} {{commit}}|prune}}
5 git {{gc -q|gc -q|gc -q --prune=now|repack -qad|pack-refs --all --prune|prune --expire=now|update-index -q --refresh|status -s > /dev/null}}
"""  # noqa: E501 - one command a line
"""Weights and commands. In braces: one of several, or a word of ``CommandSource.word``; innermost braces come first."""
_ROWS = [(int(weight), line) for weight, _blank, line in (row.partition(" ") for row in COMMANDS.strip().splitlines())]
_CHOICE = re.compile(r"\{([^{}]*)\}")


class Names(NamedTuple):
    """Refs of one side, by short name."""

    branches: Sequence[str]
    tags: Sequence[str]


class CommandSource:
    """Random commands of one side. ``prefix`` begins the names of what it makes, so that both sides' are told apart."""

    def __init__(self, chance: random.Random, prefix: str) -> None:
        self._chance, self._prefix, self._count = chance, prefix, 0

    def script(self, names: Names) -> str:
        """Return one to three commands."""
        weights, lines = zip(*_ROWS, strict=True)
        return "; ".join(
            self._filled(line, names)
            for line in self._chance.choices(lines, weights, k=self._chance.choice((1, 1, 1, 2, 3)))
        )

    def _filled(self, line: str, names: Names) -> str:
        line = line.replace("{path}", self._chance.choice(TEXTS))  # the same one at each place
        while (filled := _CHOICE.sub(lambda choice: self.word(choice[1], names), line)) != line:
            line = filled
        return line

    def word(self, words: str, names: Names) -> str:
        if words.startswith("new "):
            self._count += 1
            return f"{self._prefix}{words[4:]}{self._count}"
        choose = self._chance.choice
        branch, tag = choose(tuple(names.branches) or ("main",)), choose(tuple(names.tags) or ("v1",))
        match words:
            case "text":
                return choose(TEXTS)
            case "file":
                return choose((*TEXTS, BINARY, PROGRAM, LINK, SECRETS[0], "notes", "src/lib"))
            case "branch":
                return branch
            case "tag":
                return tag
            case "commit":
                return choose((branch, f"{branch}~1", "HEAD~1", "HEAD~2", tag if names.tags else "HEAD"))
            case "number":
                return str(1 + self._chance.randrange(12))
        return choose(words.split("|"))

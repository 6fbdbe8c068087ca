#!/usr/bin/env bash
# Run $COMMAND in the fork "review" and write its changes. The variables that begin with GITHUB_ or ACTIONS_ are not the
# command's: mudroom passes none of them on.
set -euo pipefail
mudroom=$RUNNER_TEMP/mudroom/bin/mudroom
directory=$RUNNER_TEMP/mudroom-review
export MUDROOM_STATE=$RUNNER_TEMP/mudroom-state
mkdir -p "$directory"

for host in $HOSTS; do
  "$mudroom" net allow "$host"
done
code=0
"$mudroom" exec --fork review --agent "$AGENT" --timeout "$TIMEOUT" --json -- sh -c "$COMMAND" >"$directory/run.json" ||
  code=$?
stat="no changes"
if "$mudroom" diff review >"$directory/changes.diff" 2>/dev/null; then
  stat=$("$mudroom" diff review --stat)
fi

python3 - "$directory" "$code" "$stat" <<'PYTHON'
import json
import re
import sys
from pathlib import Path

directory, code, stat = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
run = json.loads((directory / "run.json").read_text() or "{}")
if not run.get("ran", True):
    stat = f"refused: {run['verdict']['reason']}"
changes = (directory / "changes.diff").read_text("utf-8", "replace")[:50_000]
# The text is the agent's: a fence that is longer than each of its own keeps it from being more than text.
fence = "`" * (1 + max(map(len, re.findall("`+", stat + changes) or ["``"])))
page = f"The command ended with {code}. Nothing has landed.\n\n{fence}\n{stat}\n{fence}\n\n{fence}diff\n{changes}\n{fence}\n"
(directory / "review.md").write_text(page, "utf-8")
PYTHON
printf 'exit-code=%s\ndirectory=%s\n' "$code" "$directory" >>"$GITHUB_OUTPUT"

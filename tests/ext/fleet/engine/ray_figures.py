"""The figures that ``ray_matrix.py`` measured, from its JSON: a program."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from statistics import median


def main() -> None:
    told = json.loads(Path(sys.argv[1]).read_text())
    figures = {
        "errands": len(told["classes"]),
        "a node killed after": told["killed at"],
        "states then": Counter(row["state"] for row in told["errands"]),
        "began twice": sum("".join(told["lines"]).count(f"begins {name}\n") > 1 for name in told["classes"]),
        "applied": len(told["applied"]),
        "reports of passed tests": sum("OK" in text for text in told["reports"].values()),
        "after the node is back": Counter(row["state"] for row in told["at last"]),
        "late": [row["fork"] for row in told["at last"] if str(row["fork"]).endswith("-late")],
        "directories left on nodes": told["kept"],
        "processes left": told["left"],
        "ms a task, least": {name: round(min(values), 1) for name, values in told["per task"].items()},
        "ms a task, median": {name: round(median(values), 1) for name, values in told["per task"].items()},
    }
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

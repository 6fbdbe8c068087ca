"""``python -m documents [--update] [--network] [DOCUMENT…]``: run the blocks of documents and print the differences;
with --update write what was printed into the documents."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from documents.machine import ROOT
from documents.play import documents, play
from mudroom.stage.layers.layer import remove_tree

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="dev/docs", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write what was printed into the documents")
    parser.add_argument("--network", action="store_true", help="also blocks that install from a package registry")
    parser.add_argument("documents", nargs="*", metavar="DOCUMENT", help="default: all")
    args = parser.parse_args()
    failed = 0
    for path in [Path(name).resolve() for name in args.documents] or documents():
        root = tempfile.mkdtemp(prefix="mudroom-docs.")
        played = play(path, Path(root) / "d", network=args.network)
        remove_tree(root.encode())
        failed += len(played.differences)
        sys.stdout.write("".join(f"{difference}\n" for difference in played.differences))
        if args.update and played.text != path.read_text():
            path.write_text(played.text)
            sys.stdout.write(f"written: {path.relative_to(ROOT)}\n")
    sys.exit(failed > 0 and not args.update)

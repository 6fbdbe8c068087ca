"""The process that matches regular expressions for ``grep``: a separate program that uses only the standard library.

A model's expression may take forever on a line, and ``re`` holds the interpreter's lock meanwhile. Here it blocks no
other thread, and the process is killed when the search has taken too long.

Stdin: a line of JSON (``pattern``, ``ignore_case``); then for each file a line with its size in bytes, and the bytes.
Stdout: a line of JSON for each: ``{"error": …}`` or ``{}`` for the pattern, then each file's matching line numbers,
counted from 1.
"""

import json
import re
import sys

MOST = 2_000
"""Line numbers that are written for one file."""
LONGEST = 10_000
"""Bytes of a line that are searched."""


def main() -> None:
    read, write = sys.stdin.buffer, sys.stdout.buffer
    request = json.loads(read.readline())
    try:
        pattern = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        write.write(json.dumps({"error": str(error)}).encode() + b"\n")
        return
    write.write(b"{}\n")
    write.flush()
    while size := read.readline():
        numbers = []
        for number, line in enumerate(read.read(int(size)).split(b"\n"), 1):
            if pattern.search(line[:LONGEST].rstrip(b"\r").decode("utf-8", "replace")):
                numbers.append(number)
                if len(numbers) >= MOST:
                    break
        write.write(json.dumps(numbers).encode() + b"\n")
        write.flush()


if __name__ == "__main__":
    main()

"""What every backend must hold, and what others are compared by.

``escapes`` are attempts to get out, ``bypasses`` attempts to pass the gate. ``attempt``, ``run``, ``outside`` and
``document`` are of both: the form of an attempt, what makes it inside, what came of it, the writer of the documents.
"""

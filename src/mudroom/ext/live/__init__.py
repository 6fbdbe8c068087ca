"""A fork of a fork in which commands run (``fork.py``), and the policy's start commands in it (``start.py``)."""

"""What was answered in a project, as a policy file (``cli.py``)."""

"""An engine of containers beside a command: Podman without root, in a sandbox of its own (``plan.py``)."""

import sys

if sys.platform == "win32":  # chosen at import, as os chooses os.path: callers need not test the platform
    from mudroom.core.registry import twin

    sys.modules["mudroom.stage.disk"] = globals()["disk"] = twin("disk")

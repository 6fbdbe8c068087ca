import sys

if sys.platform == "win32":  # as os chooses os.path: nobody who calls these functions asks which system it is
    from mudroom.core.registry import twin

    sys.modules["mudroom.stage.disk"] = globals()["disk"] = twin("disk")

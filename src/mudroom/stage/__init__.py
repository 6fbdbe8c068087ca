import sys

if sys.platform == "win32":  # as os chooses os.path: nobody who calls these functions asks which system it is
    from mudroom.ext.windows.stage import nt_disk as disk

    sys.modules["mudroom.stage.disk"] = disk

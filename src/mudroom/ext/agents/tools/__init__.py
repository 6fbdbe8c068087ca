"""Tools for agents on one fork. ``table.py`` has the table, ``tool.py`` the interface."""

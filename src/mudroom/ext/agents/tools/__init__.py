"""Tools with which agents work on one fork. ``table.py`` has the table, ``tool.py`` the interface."""

"""How a command is confined here: its grant, its plan, its container, and its way to the gate."""

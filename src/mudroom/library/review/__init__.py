"""Values that front doors draw: the rows of a fork, the activity of a project, a folder for a new project."""

"""What a file's parts are, by its kind; each kind is a module, run in a confined process: its input is hostile."""

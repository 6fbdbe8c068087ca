"""What a graphics or compute card needs in a sandbox, by the machine's CDI files."""

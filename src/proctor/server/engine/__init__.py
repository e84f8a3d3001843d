"""What executes the runs that are submitted to a server, in a process of its own."""

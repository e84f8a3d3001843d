"""The client of a Proctor server: what the command line uses when it talks to one."""

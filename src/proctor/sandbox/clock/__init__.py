"""A clock that is far ahead inside a sandbox, for programs that use the C library."""

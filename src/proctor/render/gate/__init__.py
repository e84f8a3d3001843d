"""A verdict for every reader: people, programs, CI servers, pull requests, the report page."""

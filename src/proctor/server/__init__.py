"""The service: the REST API, what executes submitted runs, and the page."""

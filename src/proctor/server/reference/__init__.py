"""The API described: OpenAPI with examples, and a page of it."""

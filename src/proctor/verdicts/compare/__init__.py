"""Two sides of results, from any source, and what may be said about the change between them."""

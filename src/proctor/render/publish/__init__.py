"""A site of static pages from stored runs: for any web host, and from disk."""

"""Sandboxes that are containers of podman or docker: one implementation, two tables of differences."""

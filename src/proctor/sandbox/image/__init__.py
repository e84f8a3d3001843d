"""Root file systems for sandboxes: from Dockerfiles, images and the host's own system, kept as layers."""

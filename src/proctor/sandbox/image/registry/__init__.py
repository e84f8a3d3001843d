"""A client of image registries: the OCI distribution API, without a daemon. `pull` is the way in."""

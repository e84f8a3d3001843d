"""One parameter point, as the measured process itself sees it."""

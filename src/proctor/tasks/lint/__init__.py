"""Look over task folders as a reviewer would."""

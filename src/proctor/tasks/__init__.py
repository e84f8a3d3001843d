"""Harbor task folders and archives, read and checked."""

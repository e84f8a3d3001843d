"""The small agent simulation under several experiments: world, perception, memory and its log in SQLite."""

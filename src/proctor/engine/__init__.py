"""Where and when trials execute."""

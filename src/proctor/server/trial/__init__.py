"""One trial for its page: what it came to, its transcript, its files and its logs. All of it is hostile."""

"""What a server reads of a store: rows of lists, states of trials, events, work and money."""

"""Step-by-step episodes: agents with `reset`, `observe` and `act`, and the programs that run inside."""

"""Harbor's agents: their code runs in Harbor's own Python beside us, and their commands in our sandbox."""

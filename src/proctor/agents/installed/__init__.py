"""Other people's command-line agents: installed once on this machine, never downloaded by a trial."""

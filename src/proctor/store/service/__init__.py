"""What a server keeps in the store besides runs: who may do what, what was uploaded, what is to be done."""

"""Agent memory in a real Redis: the experiment, the server that it starts and the protocol it speaks."""

"""What measures around `execute_once`."""

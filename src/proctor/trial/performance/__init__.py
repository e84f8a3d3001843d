"""The performance of the program that an agent wrote, against the author's."""

"""The run folder: the on-disk format of a run, written, read, checked and transferred."""

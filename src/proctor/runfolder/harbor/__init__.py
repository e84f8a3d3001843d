"""Job folders of Harbor, written from runs and read into runs."""

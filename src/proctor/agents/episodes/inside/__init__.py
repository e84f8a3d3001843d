"""The two programs of an episode. They run inside sandboxes, on any Python from 3.9, without Proctor."""

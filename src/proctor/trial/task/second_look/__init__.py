"""Find a pass that rests on changed system files: list what changed, undo it, and judge a second time."""

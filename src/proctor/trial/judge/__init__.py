"""A model scores what an agent left, rubric by rubric: what it is shown, its votes, and what they come to."""

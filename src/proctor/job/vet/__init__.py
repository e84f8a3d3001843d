"""Try tasks before they are trusted: the author's solution, no solution, and disturbed surroundings."""

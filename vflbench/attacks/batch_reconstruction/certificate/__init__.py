"""What a search claims, verified again: integer arithmetic only, and no code in common with the search."""

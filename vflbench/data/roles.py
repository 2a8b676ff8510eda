"""What a row is for."""

DROPPED, TRAIN, TEST, VALIDATION = 0, 1, 2, 3

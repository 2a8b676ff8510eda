"""Several local steps in one update: the sums over all their batches, and which rows and labels belong to which batch."""

"""alpha and beta of one private batch, from the parameters and the updates of its rounds."""

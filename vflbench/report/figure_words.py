"""What each figure of rebuilt data says, in a line."""

from collections.abc import Iterable

FIGURES = {
    "exact": "share of batches in which every entry is right, once rows are matched",
    "contained": "share of batches that are among the candidates of the attack",
    "entries_right": "share of right entries; where nothing was found, of a guess",
    "labels_right": "share of right labels; where nothing was found, of a guess",
    "guess_entries_right": "the same share of a guess that is the same for every row and needs no update",
    "guess_labels_right": "the same share of the more frequent label",
    "matched_guess_right": "the same share of random batches, with rows matched: compare entries right with it",
    "steps_right": "share of rows that are placed in the right local batch",
    "guessed_share": "share of batches in which no row was found, so that all of it is a guess",
    "columns_told": "share of columns for which every entry has an answer",
    "rounds": "independent rounds that the attack has seen of a batch",
    "condition": "condition number of the equations that were solved: large is sensitive to rounding",
    "residual": "what the solution leaves of the equations: 0 is exact",
    "gram_residual": "what the solution leaves of the products of columns: 0 is exact",
    "matches": "batches that fit everything that was seen, or of rows the share of those that fit",
    "proved": "1: the list of batches that fit is proved to be complete",
    "unique": "1: only one batch fits, but for the order of its rows",
    "told_apart": "1: it is known which row was in which local batch",
    "ended": "1: the search was finished; 0: it ended at its time limit",
    "solver_seconds": "seconds that the search took for a batch",
    "entries_certain": "share of entries that are equal in every batch that fits",
    "directions_missing": "directions of a row that the equations leave open",
    "error_bound": "the mean squared error that remains at most",
    "row_candidates_count": "rows that fit",
    "mse": "mean squared error of values scaled to [0, 1]",
    "r2": "share of the columns' variance that is rebuilt: 1 is exact, 0 as good as the mean, below 0 worse",
    "error_over_spread": "error over the column's standard deviation: about 1 for the mean row",
    "within_tolerance": "share of numbers off by at most 0.319 standard deviations",
    "id_accuracy": "share of right category ids",
    "rows_right": "share of rows with every number within tolerance and every id right",
    "psnr": "peak signal-to-noise ratio in dB: the higher, the more alike",
    "ssim": "structural similarity: 1 for equal pictures, 0 for unrelated ones",
    "recognised": "share of rebuilt pictures that a classifier takes for their true class",
    "identified": "share of rebuilt rows that are nearer to their true row than to 19 others of its class; by chance 1/20",
    "feature_distance": "distance in the features of a classifier: 0 for equal pictures",
    "attribute_auc": "AUC of a value of the column against the others: 0.5 is a coin",
    "attribute_gain": "by how much that is above what is read without messages",
}
"""Figure -> words."""


def figure_words(names: Iterable[str]) -> list[str]:
    """`entries right: share of right entries`, one line a figure; names without words are left out."""
    return [f"{name.replace('_', ' ')}: {FIGURES[name]}" for name in names if name in FIGURES]

"""Inner products of all columns of a matrix, without computing those of two columns twice."""

from torch import Tensor

_COLUMNS = 32  # at least, that are multiplied with all that follow
_LEAST_ROWS = 4096  # of fewer, the work that is saved doesn't repay the calls


def gram(x: Tensor) -> Tensor:
    """X^T X (d, d) of the type of x. x: (n, d).

    On a CPU, strips of 32 columns or more are multiplied with themselves and with those right of them: for 128 columns, 5/8
    of the work.
    """
    n, d = x.shape
    if x.device.type != "cpu" or n < _LEAST_ROWS or d < 3 * _COLUMNS:
        return x.T @ x
    products, left = x.new_empty(d, d), 0
    for columns in x.tensor_split(d // _COLUMNS, dim=1):
        right = left + columns.shape[1]
        strip = columns.T @ x[:, left:]
        products[left:right, left:] = strip
        products[right:, left:right] = strip[:, right - left :].T
        left = right
    return products

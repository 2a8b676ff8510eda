import torch

from vflbench.numerics.pixels import Area, area_of, pixel_names, put_together


def test_other_columns_are_no_rectangle():
    """None, another, one more, one that is missing at a corner or inside, and all in another order."""
    names = pixel_names(3, 3)
    for other in ([], ["age"], [*names, "age"], names[:-1], [*names[:4], *names[5:]], names[::-1]):
        assert area_of(other) is None, other


def test_parts_put_together_are_the_picture(rng):
    for channels in (1, 3):
        whole = torch.rand(5, 4, 6, channels, generator=rng)
        areas = [Area(0, 0, 3, 2, channels), Area(3, 0, 1, 2, channels), Area(0, 2, 4, 4, channels)]
        cut = {a: whole[:, a.top : a.top + a.height, a.left : a.left + a.width].flatten(1) for a in areas}
        expected = whole[..., 0] if channels == 1 else whole
        assert torch.equal(put_together(cut), expected)


def test_overlapping_or_incomplete_parts_are_no_picture():
    for places in ([(0, 0), (2, 2)], [(0, 0), (0, 1)], [(0, 0), (0, 2), (0, 1), (1, 0)]):
        assert put_together({Area(*place, 2, 2): torch.zeros(1, 4) for place in places}) is None


def test_channels_come_first_in_planes():
    x = torch.arange(12.0)[None]
    planes = Area(0, 0, 2, 2, 3).picture(x)
    assert planes.shape == (1, 3, 2, 2)
    assert planes[0, 1].flatten().tolist() == [1, 4, 7, 10]

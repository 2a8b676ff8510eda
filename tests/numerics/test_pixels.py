import torch

from vflbench.numerics.pixels import Area, area_of, pixel_names, put_together


def test_names_give_the_place_of_a_rectangle():
    names = pixel_names(4, 6)
    part = [name for name in names if name.split("_")[1] in "12" and name.split("_")[2] in "345"]
    assert area_of(names) == Area(0, 0, 4, 6)
    assert area_of(part) == Area(1, 3, 2, 3)
    assert area_of(pixel_names(2, 3, channels=3)) == Area(0, 0, 2, 3, 3)


def test_other_columns_are_no_rectangle():
    names = pixel_names(3, 3)
    assert area_of([]) is None
    assert area_of(["age"]) is None
    assert area_of([*names, "age"]) is None
    assert area_of(names[:-1]) is None  # a corner is missing
    assert area_of(names[::-1]) is None
    assert area_of([*names[:4], *names[5:]]) is None


def test_parts_put_together_are_the_picture(rng):
    for channels in (1, 3):
        whole = torch.rand(5, 4, 6, channels, generator=rng)
        areas = [Area(0, 0, 3, 2, channels), Area(3, 0, 1, 2, channels), Area(0, 2, 4, 4, channels)]
        cut = {a: whole[:, a.top : a.top + a.height, a.left : a.left + a.width].flatten(1) for a in areas}
        expected = whole[..., 0] if channels == 1 else whole
        assert torch.equal(put_together(cut), expected)


def test_overlapping_or_incomplete_parts_are_no_picture():
    x = torch.zeros(1, 4)
    assert put_together({Area(0, 0, 2, 2): x, Area(2, 2, 2, 2): x}) is None
    assert put_together({Area(0, 0, 2, 2): x, Area(0, 1, 2, 2): x}) is None
    assert put_together({Area(0, 0, 2, 2): x, Area(0, 2, 2, 2): x, Area(0, 1, 2, 2): x, Area(1, 0, 2, 2): x}) is None


def test_channels_come_first_in_planes():
    x = torch.arange(12.0)[None]
    planes = Area(0, 0, 2, 2, 3).picture(x)
    assert planes.shape == (1, 3, 2, 2)
    assert planes[0, 1].flatten().tolist() == [1, 4, 7, 10]

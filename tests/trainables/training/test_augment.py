"""Augmentation: each change moves, mirrors, hides or mixes exactly what it says."""

import numpy as np
import pytest
import torch
from torch import Tensor

from automcu_ray.core.training_recipe import Protocol
from trainables.training.augment import augment, mix, normalize

WHITE = 127 / 128


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_none_is_normalisation() -> None:
    images = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).reshape(2, 3, 4, 4)
    assert torch.equal(augment(images, Protocol(epochs=1), generator()), normalize(images))


def test_normalised_pixel_is_int8_over_128() -> None:
    assert normalize(torch.tensor([0, 128, 255], dtype=torch.uint8)).tolist() == [-1.0, 0.0, WHITE]


def test_crop_moves_each_image_by_at_most_the_padding() -> None:
    image = torch.zeros(64, 1, 5, 5, dtype=torch.uint8)
    image[:, :, 2, 2] = 255
    moved = augment(image, Protocol(epochs=1, crop_padding_px=1), generator())
    rows, columns = torch.where(moved[:, 0] == WHITE)[1:]
    assert set(rows.tolist()) == set(columns.tolist()) == {1, 2, 3}
    assert len(rows) == 64


def test_crop_keeps_channels_apart_and_uncovers_black() -> None:
    images = torch.tensor([10, 20, 30], dtype=torch.uint8)[None, :, None, None].expand(64, 3, 4, 6)
    moved = augment(images, Protocol(epochs=1, crop_padding_px=2, flip=True), generator())
    for channel, pixel in enumerate((10, 20, 30)):
        assert set(moved[:, channel].flatten().tolist()) == {-1.0, (pixel - 128) / 128}


def test_flip_mirrors_whole_rows_of_about_half_of_the_images() -> None:
    images = torch.arange(8, dtype=torch.uint8).reshape(1, 1, 2, 4).repeat(1000, 1, 1, 1)
    pixels = augment(images, Protocol(epochs=1, flip=True), generator()) * 128 + 128
    mirrored = pixels[:, 0, 0, 0] == 3
    assert 400 < int(mirrored.sum()) < 600
    assert all(rows == [[3, 2, 1, 0], [7, 6, 5, 4]] for rows in pixels[mirrored][:, 0].tolist())
    assert all(rows == [[0, 1, 2, 3], [4, 5, 6, 7]] for rows in pixels[~mirrored][:, 0].tolist())


def test_cutout_greys_one_square_that_may_reach_over_the_edge() -> None:
    images = torch.full((500, 2, 6, 6), 255, dtype=torch.uint8)
    holes = augment(images, Protocol(epochs=1, cutout_px=2), generator()) == 0.0
    assert torch.equal(holes[:, 0], holes[:, 1])
    areas = holes[:, 0].sum((1, 2))
    assert set(areas.tolist()) == {1, 2, 4}  # in a corner, at an edge, inside
    assert 300 < int((areas == 4).sum()) < 400  # 25 of 36 centres leave it whole: 347 of 500


class TestMix:
    batch = normalize(torch.arange(8, dtype=torch.uint8)[:, None, None, None].expand(8, 1, 16, 16))

    def mixed(self, seed: int = 0, mixup: float = 0.0, cutmix: float = 0.0) -> tuple[Tensor, Tensor, float]:
        protocol = Protocol(epochs=1, mixup=mixup, cutmix=cutmix)
        found = mix(self.batch, protocol, generator(), np.random.default_rng(seed))
        return found.images, self.batch[found.partner], float(found.share)

    def test_mixup_blends_each_image_with_its_partner(self) -> None:
        images, partners, share = self.mixed(mixup=1.0)
        assert 0 < share < 1
        assert torch.allclose(images, self.batch * share + partners * (1 - share))

    @pytest.mark.parametrize("seed", range(5))
    def test_cutmix_takes_its_share_of_pixels_from_the_partner(self, seed: int) -> None:
        images, partners, share = self.mixed(seed, cutmix=1.0)
        assert torch.all((images == self.batch) | (images == partners))
        other = ~torch.eq(partners, self.batch)[:, 0, 0, 0]  # an image may be its own partner
        kept = (images == self.batch)[other].float().mean((1, 2, 3))
        assert other.any() and torch.allclose(kept, torch.tensor(share))

    def test_both_take_turns_by_chance(self) -> None:
        cut = [
            bool(torch.all((images == self.batch) | (images == partners)))
            for images, partners, _ in (self.mixed(seed, mixup=1.0, cutmix=1.0) for seed in range(40))
        ]
        assert 10 < sum(cut) < 30

    def test_alpha_bounds_what_is_usual(self) -> None:
        shares = [self.mixed(seed, mixup=100.0)[2] for seed in range(20)]
        assert all(0.3 < share < 0.7 for share in shares)

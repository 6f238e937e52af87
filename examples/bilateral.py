"""Bilateral filtering of an image: pixels attend to pixels that are near and of like colour. Edges
stay, noise goes.
"""

import sys

import matplotlib.pyplot as plt
import torch
from matplotlib import cbook

import phgcn

# pixels, and distance of colours in [0, 1], at which the weight has fallen to 1/e
NEAR, LIKE = 1.5, 0.3


def photograph(size=256):
    """A part of the portrait that comes with matplotlib, [size, size, 3] in [0, 1]."""
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        pixels = torch.from_numpy(plt.imread(file, format="jpg").copy()).float() / 255
    return pixels[30 : 30 + size, 130 : 130 + size]


def filtered(image, by_colour):
    """The image with each pixel replaced by its attention over all pixels; by place alone, or by
    place and colour.
    """
    rows, columns = torch.meshgrid(
        *(torch.arange(n, dtype=torch.float32) for n in image.shape[:2]), indexing="ij"
    )
    place = torch.stack([rows, columns], dim=-1).reshape(-1, 2) / NEAR
    colour = image.reshape(-1, 3)
    positions = torch.cat([place, colour / LIKE], dim=1) if by_colour else place
    return phgcn.global_attention(positions, colour, decay=1.0).reshape(image.shape)


def psnr(image, clean):
    return -10 * float((image - clean).square().mean().log10())


torch.manual_seed(0)
clean = photograph()
noisy = (clean + 0.1 * torch.randn(clean.shape)).clamp(0, 1)
shown = {
    "noisy": noisy,
    "blurred by place alone": filtered(noisy, False),
    "bilateral": filtered(noisy, True),
}
for name, image in shown.items():
    print(f"{name}: {psnr(image, clean):.1f} dB")

if len(sys.argv) > 1:  # python examples/bilateral.py picture.png
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
    for axis, (name, image) in zip(axes, shown.items(), strict=True):
        axis.imshow(image.numpy())
        axis.set(title=f"{name}, {psnr(image, clean):.1f} dB", xticks=[], yticks=[])
    figure.savefig(sys.argv[1], dpi=90)

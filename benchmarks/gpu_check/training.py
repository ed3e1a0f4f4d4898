"""What is trained: a CNN in bf16 on images that are made up as they are needed, and can be learned."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.gpu_check.workloads import Workload

CLASSES = 10
SIZE = 32
"""Height and width of an image of three channels."""

NOISE = 8.0
"""Standard deviation of what is added to a prototype, whose own is below one: enough for some 100 steps to learn."""

TEST_ROWS = 512


def build_model(width: int) -> nn.Sequential:
    """Four convolutions, of which the last three halve the image, and a linear layer."""
    layers: list[nn.Module] = []
    before = 3
    for stride, after in ((1, width), (2, width), (2, 2 * width), (2, 2 * width)):
        convolution = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
        before = after
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * (SIZE // 8) ** 2, CLASSES))


class Images:
    """A prototype for each class, and rows that are one of them with noise. Nothing is read or downloaded."""

    def __init__(self, device: torch.device, seed: int) -> None:
        coarse = torch.randn(CLASSES, 3, 8, 8, generator=torch.Generator().manual_seed(1))
        self._prototypes = nn.functional.interpolate(coarse, size=SIZE, mode="bilinear").to(device)
        self._device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def draw(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images of shape (rows, 3, SIZE, SIZE), and their classes."""
        classes = torch.randint(CLASSES, (rows,), generator=self._generator, device=self._device)
        noise = torch.randn(rows, 3, SIZE, SIZE, generator=self._generator, device=self._device)
        return self._prototypes[classes] + NOISE * noise, classes


def held_out_images() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows on the CPU that are never trained on."""
    return Images(torch.device("cpu"), seed=2).draw(TEST_ROWS)


class Training:
    """A network in training."""

    def __init__(self, device: torch.device, workload: Workload) -> None:
        torch.manual_seed(workload.seed)
        self.model = build_model(workload.width).to(device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # PyTorch does not declare it
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=workload.learning_rate, momentum=0.9)
        self._device, self._workload = device, workload
        self._images = Images(device, seed=100 + workload.seed)

    def step(self) -> torch.Tensor:
        """One step of the optimizer; returns its loss, on the device, so that nobody has to wait for it."""
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self._device)
        for _ in range(self._workload.repeats):
            images, classes = self._images.draw(self._workload.batch_size)
            with torch.autocast(self._device.type, dtype=torch.bfloat16):
                scores = self.model(images.contiguous(memory_format=torch.channels_last))
                loss = nn.functional.cross_entropy(scores, classes) / self._workload.repeats
            loss.backward()  # type: ignore[no-untyped-call]  # PyTorch left it without annotations
            total += loss.detach()
        self.optimizer.step()
        return total

"""A perceptron of Lightning that learns digits."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(lightning.LightningModule):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, images):
        """Scores of the ten digits."""
        return self.layers(images)

    def training_step(self, batch, _):
        """The loss of a batch."""
        images, labels = batch
        return nn.functional.cross_entropy(self(images), labels)

    def validation_step(self, batch, _):
        """How often it is right."""
        images, labels = batch
        self.log("val_accuracy", (self(images).argmax(dim=1) == labels).float().mean())

    def configure_optimizers(self):
        """Adam, slower from epoch to epoch."""
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)]


lightning.seed_everything(0)
images, labels = load_digits(return_X_y=True)
images, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
train = DataLoader(TensorDataset(images[:1300], labels[:1300]), batch_size=64, shuffle=True)
test = DataLoader(TensorDataset(images[1300:], labels[1300:]), batch_size=497)
trainer = lightning.Trainer(
    max_epochs=20,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Digits(), train, test)

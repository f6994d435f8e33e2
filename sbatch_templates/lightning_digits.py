"""Train with Lightning, whose Trainer finds slurmplug-report by itself: it reports, stops and saves when requested."""

import sys
import time

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from slurmplug_report import report
from slurmplug_report.lightning import resume_path

EPOCHS = 60


class Digits(LightningModule):
    """Two layers for images of 8 by 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch):
        x, y = batch
        scores = self.net(x)
        self.log("val_loss", nn.functional.cross_entropy(scores, y))
        self.log("val_accuracy", (scores.argmax(dim=1) == y).float().mean())

    def on_train_epoch_start(self):
        time.sleep(0.2)  # as long as an epoch on a larger data set

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.0005)


seed_everything(0)
x, y = load_digits(return_X_y=True)
x_train, x_valid, y_train, y_valid = train_test_split(torch.tensor(x / 16).float(), torch.tensor(y), random_state=0)
data = TensorDataset(x_train, y_train)
sampler = DistributedSampler(data, num_replicas=1, rank=0)  # the order depends on the epoch alone, also after a restart
train = DataLoader(data, batch_size=64, sampler=sampler)
valid = DataLoader(TensorDataset(x_valid, y_valid), batch_size=512)
model = Digits()
trainer = Trainer(max_epochs=EPOCHS, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(model, train, valid, ckpt_path=resume_path())

torch.save(model.state_dict(), "lightning_digits.pt")
sys.exit(report().status)  # 0, unless it was stopped short of a target that the script requires

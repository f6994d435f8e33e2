"""Train a small transformer with Hugging Face's Trainer, which reports, stops and saves when requested."""

import os
import sys
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from slurmplug_report import report
from slurmplug_report.huggingface import SlurmplugCallback

EPOCHS = 40
FOLDER = f"huggingface-{os.environ['SLURM_JOB_ID']}"


class Comparisons(Dataset):
    """Sequences of 8 numbers, and whether the first is greater than the last."""

    def __init__(self, rows: int, seed: int) -> None:
        self.numbers = torch.randint(0, 32, (rows, 8), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, row: int) -> dict:
        numbers = self.numbers[row]
        return {"input_ids": numbers, "labels": int(numbers[0] > numbers[-1])}


class TakesLonger(TrainerCallback):
    """An epoch takes as long as on a larger data set."""

    def on_epoch_begin(self, args, state, control, **_):
        time.sleep(0.2)


config = BertConfig(
    vocab_size=32, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
    max_position_embeddings=8,
)  # fmt: skip
torch.manual_seed(0)
trainer = Trainer(
    BertForSequenceClassification(config),
    TrainingArguments(
        FOLDER,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=64,
        learning_rate=0.002,
        eval_strategy="epoch",
        logging_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    ),
    train_dataset=Comparisons(1024, seed=1),
    eval_dataset=Comparisons(256, seed=2),
    compute_metrics=lambda found: {"accuracy": (found.predictions.argmax(axis=1) == found.label_ids).mean()},
    callbacks=[SlurmplugCallback(), TakesLonger()],
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(FOLDER) if os.path.isdir(FOLDER) else None)

trainer.save_model(f"{FOLDER}/last")
sys.exit(report().status)  # 0, unless it was stopped short of a target that the script requires

"""What the name of a reported quantity says: which direction is better, and whether it can be a percentage. Pure."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

PREFIXES: Final = ("val_", "valid_", "validation_", "eval_", "dev_", "test_")
"""Of quantities that are measured on data that is not trained on."""

_HIGHER_SHARES = """accuracy acc balanced_accuracy top1 top5 top1_accuracy top5_accuracy precision recall sensitivity
specificity f1 f1_score auc auroc auprc ap average_precision map mean_ap iou miou mean_iou jaccard dice mcc kappa r2
ssim bleu rouge chrf exact_match em pass_at_1 win_rate success_rate hit_rate ndcg mrr"""
_LOWER_SHARES = "error error_rate err top1_error top5_error wer cer ter eer"
_HIGHER = "reward return episode_reward mean_reward score elo psnr log_likelihood elbo"
_LOWER = """loss perplexity ppl nll cross_entropy bce mse rmse mae mape kl fid bpc bpb bits_per_byte bits_per_character
energy regret"""


class Known(NamedTuple):
    """What is known of a quantity. `sign`: -1 where it is better when lower. `share`: it lies between 0 and 1 (a few
    may be negative), so that it may also be reported in percent."""

    sign: float
    share: bool


_KNOWN: Mapping[str, Known] = MappingProxyType(
    {
        name: Known(sign, share)
        for names, sign, share in (
            (_HIGHER_SHARES, 1.0, True),
            (_LOWER_SHARES, -1.0, True),
            (_HIGHER, 1.0, False),
            (_LOWER, -1.0, False),
        )
        for name in names.split()
    }
)
NAMES: Final = tuple(_KNOWN)
"""The quantities whose direction is known, without their prefixes, those of `validation_quantity` first."""


def known(quantity: str) -> Known | None:
    """What is known of a quantity by its name, such as val_loss, or by its last words: mask_iou, dice_loss."""
    words = _without_prefix(quantity.lower()).split("_")
    return next((_KNOWN[name] for at in range(len(words)) if (name := "_".join(words[at:])) in _KNOWN), None)


def validation_quantity(reported: Collection[str], sign: float | None = None) -> str | None:
    """The first of the reported quantities, in the order of `NAMES`, that is measured on other data than is trained on.

    sign: only those of that direction.
    """
    found = [
        name
        for name in reported
        if name.startswith(PREFIXES) and (what := known(name)) is not None and sign in (None, what.sign)
    ]
    return min(found, key=_place, default=None)


def _place(quantity: str) -> tuple[int, str]:
    base = _without_prefix(quantity)
    return NAMES.index(base) if base in _KNOWN else len(NAMES), quantity


def _without_prefix(quantity: str) -> str:
    return next((quantity.removeprefix(prefix) for prefix in PREFIXES if quantity.startswith(prefix)), quantity)

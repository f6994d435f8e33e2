"""Deprecated: the earlier place of `policies.placement.gpu_space`, kept for sites' own policies."""

import warnings

from policies.placement.gpu_space import GPUSpace as CountedSpace

__all__ = ["CountedSpace"]

warnings.warn(
    "policies.counted is deprecated: import from policies.placement.gpu_space", DeprecationWarning, stacklevel=2
)

"""Deprecated: the earlier place of `policies.placement.space`, kept for sites' own policies."""

import warnings

from policies.placement.space import Packing, Space
from policies.placement.space import Placement as Place
from policies.placement.space import free_resources as unused

__all__ = ["Packing", "Place", "Space", "unused"]

warnings.warn("policies.space is deprecated: import from policies.placement.space", DeprecationWarning, stacklevel=2)

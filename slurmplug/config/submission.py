"""What job_submit.lua is to know of this site's configuration, which Lua cannot read."""

import json

from slurmplug.config import policy_registry
from slurmplug.config.schema import Config


def site_lua(config: Config) -> str:
    """The site.lua that slurmplug.lua reads: why numbers of GPUs are not changed here, where they are not.

    Raises:
        ConfigError: the policy cannot be loaded
    """
    why = _no_resizes(config)
    fields = f"resize = {json.dumps(why)}" if why else ""
    return f"-- printed by slurmplug show-config --submission\nreturn {{{fields}}}\n"


def _no_resizes(config: Config) -> str:
    if (mode := config.mode.of("resize")) != "act":
        return f"the mode for resizes is {mode} here"
    if getattr(policy_registry.policy(config).settings, "grow", True) is False:
        return f"policies.{config.policy}.grow is false here"
    return ""

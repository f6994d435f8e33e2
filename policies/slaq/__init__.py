"""SLAQ (Zhang, Stafman, Or, Freedman, SoCC 2017)."""

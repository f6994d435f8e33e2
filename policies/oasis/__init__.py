"""OASiS (Bao, Peng, Wu, Li, INFOCOM 2018)."""

"""How well the predictors do on data with a known end, the simple methods beside them: tables as lists of `Line`."""

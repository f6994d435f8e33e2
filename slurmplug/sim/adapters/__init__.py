"""The parts of a cycle in a simulation: cluster, intake, forecaster and ledger, on top of the engine."""

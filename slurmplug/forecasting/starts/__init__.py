"""When waiting jobs start: their queue simulated forward, a model of waits, and when jobs did start.

`live_queue` turns a snapshot into `queues`, which `simulation` works off on samples of run times, with `waiting_jobs`
(in `waiting_lists`), `running_jobs` and `limit_counts` as its state. `wait_model` learns from the queues in
`queue_history`; `start_outcomes` corrects either by what came true; `queue_forecast` is what the daemon keeps for all
jobs.
"""

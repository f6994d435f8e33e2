"""The ledger's tables. Each entry of `MIGRATIONS` brings the file from one PRAGMA user_version to the next."""

MIGRATIONS = (
    """
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    cluster TEXT NOT NULL, job_id INTEGER NOT NULL, first_submit INTEGER NOT NULL,
    array_id INTEGER, array_task INTEGER, elements INTEGER, het_id INTEGER,
    uid INTEGER, user TEXT, account TEXT, qos TEXT, partition TEXT, state TEXT, reason TEXT, name TEXT, comment TEXT,
    dependency TEXT, features TEXT, reservation TEXT, node_list TEXT, batch INTEGER, restarts INTEGER,
    submit REAL, eligible REAL, start REAL, end REAL, time_limit REAL,
    nodes INTEGER, cpus INTEGER, memory REAL, gpus INTEGER, gpu_type TEXT, exit_code INTEGER,
    directives TEXT, checkpoint REAL, checkpoint_time REAL,
    label REAL, waited_before REAL, attained_before REAL,
    predicted REAL, predicted_low REAL, predicted_high REAL, predicted_by TEXT,
    foreseen REAL, foreseen_low REAL, foreseen_high REAL, foreseen_at REAL,
    ended INTEGER NOT NULL, listed INTEGER NOT NULL, last_seen REAL NOT NULL, given_back INTEGER NOT NULL DEFAULT 0,
    UNIQUE (cluster, job_id, first_submit)
);
CREATE INDEX jobs_job_id ON jobs (job_id);
CREATE INDEX jobs_live ON jobs (ended, user);
CREATE INDEX jobs_listed ON jobs (listed);
CREATE TABLE progress (
    job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    restarts INTEGER NOT NULL, iteration REAL NOT NULL, time REAL NOT NULL, quantities TEXT NOT NULL,
    PRIMARY KEY (job, restarts, iteration)
) WITHOUT ROWID;
CREATE TABLE faults (
    job_id INTEGER NOT NULL, rule TEXT NOT NULL, detail TEXT NOT NULL,
    count INTEGER NOT NULL, first REAL NOT NULL, last REAL NOT NULL,
    PRIMARY KEY (job_id, rule, detail)
) WITHOUT ROWID;
CREATE TABLE cycles (
    id INTEGER PRIMARY KEY,
    started REAL NOT NULL, finished REAL,
    policy TEXT, modes TEXT, jobs INTEGER, pending INTEGER, running INTEGER, managed INTEGER,
    frozen TEXT, postponed INTEGER, seconds TEXT, error TEXT NOT NULL DEFAULT '', inputs BLOB
);
CREATE TABLE standing (
    job INTEGER PRIMARY KEY REFERENCES jobs ON DELETE CASCADE,
    cycle INTEGER NOT NULL,
    rank REAL, allowed INTEGER NOT NULL, spared TEXT NOT NULL, priority REAL,
    terms TEXT NOT NULL, forecast TEXT NOT NULL, note TEXT
);
CREATE TABLE decisions (
    job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    kind TEXT NOT NULL, verdict TEXT NOT NULL, rule TEXT NOT NULL, veto TEXT NOT NULL,
    facts TEXT NOT NULL, veto_facts TEXT NOT NULL,
    first_cycle INTEGER NOT NULL, last_cycle INTEGER NOT NULL, first REAL NOT NULL, last REAL NOT NULL,
    PRIMARY KEY (job, kind, verdict, rule, veto)
) WITHOUT ROWID;
CREATE TABLE operations (
    id TEXT PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    kind TEXT NOT NULL, rule TEXT NOT NULL, facts TEXT NOT NULL, opened REAL NOT NULL,
    step TEXT NOT NULL, since REAL NOT NULL, until REAL NOT NULL, restarts INTEGER NOT NULL,
    told TEXT NOT NULL, tries INTEGER NOT NULL, result TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX operations_job ON operations (job);
CREATE INDEX operations_open ON operations (step);
CREATE TABLE steps (
    operation TEXT NOT NULL REFERENCES operations ON DELETE CASCADE,
    step TEXT NOT NULL, at REAL NOT NULL, cycle INTEGER NOT NULL,
    PRIMARY KEY (operation, step)
) WITHOUT ROWID;
CREATE TABLE commands (
    id TEXT PRIMARY KEY,
    cycle INTEGER NOT NULL REFERENCES cycles ON DELETE CASCADE,
    operation TEXT,
    job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    verb TEXT NOT NULL, fields TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'unknown', message TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX commands_cycle ON commands (cycle);
CREATE INDEX commands_job ON commands (job);
CREATE TABLE memory (policy TEXT PRIMARY KEY, state BLOB NOT NULL);
CREATE TABLE models (name TEXT PRIMARY KEY, version TEXT NOT NULL, trained_at REAL NOT NULL, state BLOB NOT NULL);
CREATE TABLE controls (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE VIEW stops AS
    SELECT job, rule AS stop FROM operations JOIN jobs ON jobs.id = operations.job
    WHERE kind = 'stop' AND step = 'ended'
    AND (result = 'cancelled' OR (result = 'stopped' AND jobs.state = 'COMPLETED'));
CREATE VIEW history AS
    SELECT jobs.*, end - start AS runtime FROM jobs
    WHERE ended = 1 AND state = 'COMPLETED' AND start IS NOT NULL AND end > start
    AND id NOT IN (SELECT job FROM stops);
""",
    """
ALTER TABLE jobs ADD COLUMN admission TEXT NOT NULL DEFAULT 'gone';
ALTER TABLE jobs ADD COLUMN first_seen REAL;
CREATE TRIGGER jobs_first_seen AFTER INSERT ON jobs
    BEGIN UPDATE jobs SET first_seen = NEW.last_seen WHERE id = NEW.id; END;
ALTER TABLE operations ADD COLUMN owed TEXT NOT NULL DEFAULT 'withdraw';
ALTER TABLE operations ADD COLUMN goal TEXT NOT NULL DEFAULT '{}';
ALTER TABLE operations ADD COLUMN undo TEXT NOT NULL DEFAULT '{}';
ALTER TABLE operations ADD COLUMN noted TEXT NOT NULL DEFAULT '{}';
ALTER TABLE operations ADD COLUMN requeued REAL;
CREATE INDEX operations_since ON operations (since);
""",
    """
DROP TABLE standing;
CREATE TABLE standing (id INTEGER PRIMARY KEY CHECK (id = 1), cycle INTEGER NOT NULL, told BLOB NOT NULL);
CREATE INDEX jobs_unpredicted ON jobs (ended, predicted) WHERE predicted IS NULL;
CREATE INDEX jobs_given_back ON jobs (ended, given_back) WHERE given_back = 1;
""",
    """
ALTER TABLE operations ADD COLUMN outcome TEXT;
UPDATE operations SET outcome = CASE
    WHEN result LIKE 'gave up%' THEN 'gave up'
    WHEN result LIKE 'done, but it began again before its checkpoint%' THEN 'progress lost'
    WHEN result LIKE 'done%' THEN 'done'
    WHEN result LIKE 'withdrawn%' THEN 'withdrawn'
    WHEN result LIKE 'requeued meanwhile%' THEN 'requeued meanwhile'
    WHEN result IN ('stopped', 'cancelled', 'ended by itself') THEN result
END;
UPDATE operations SET noted = CASE
    WHEN json_extract(noted, '$.checkpoint') IS NOT NULL THEN json_object(
        'user', json_extract(noted, '$.user'),
        'checkpoint', json(nullif(json_extract(noted, '$.checkpoint'), 'nan')),
        'checkpoint_time', json(nullif(json_extract(noted, '$.checkpointed'), 'nan')),
        'gpus_before', json(json_extract(noted, '$.had')),
        'gpus', json(json_extract(noted, '$.gpus')),
        'node_count', json(coalesce(json_extract(noted, '$.shape'), '0')),
        'requested_nodes', json(coalesce(
            '["' || replace(nullif(json_extract(noted, '$.wanted'), ''), ',', '","') || '"]', '[]')),
        'nodes', json(coalesce(
            '["' || replace(nullif(json_extract(noted, '$.nodes'), ''), ',', '","') || '"]', '[]')),
        'reservation_seconds', json(coalesce(json_extract(noted, '$.seconds'), '0')),
        'type', 'restart')
    WHEN json_extract(noted, '$.had') IS NOT NULL THEN json_object(
        'gpus_before', json(json_extract(noted, '$.had')),
        'gpus', json(json_extract(noted, '$.gpus')),
        'type', 'pending resize')
    ELSE 'null'
END;
DROP VIEW history;
DROP VIEW stops;
CREATE VIEW stops AS
    SELECT job, rule AS stop FROM operations JOIN jobs ON jobs.id = operations.job
    WHERE kind = 'stop' AND step = 'ended'
    AND (outcome = 'cancelled' OR (outcome = 'stopped' AND jobs.state = 'COMPLETED'));
CREATE VIEW history AS
    SELECT jobs.*, end - start AS runtime FROM jobs
    WHERE ended = 1 AND state = 'COMPLETED' AND start IS NOT NULL AND end > start
    AND id NOT IN (SELECT job FROM stops);
""",
    """
CREATE TABLE directive_changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    at REAL NOT NULL, uid INTEGER NOT NULL, user TEXT NOT NULL, request TEXT NOT NULL,
    given TEXT NOT NULL, taken_back TEXT NOT NULL, UNIQUE (job, request)
);
CREATE INDEX jobs_array ON jobs (array_id, array_task) WHERE array_id != 0;
CREATE INDEX jobs_het ON jobs (het_id) WHERE het_id != 0;
ALTER TABLE jobs ADD COLUMN submitted_directives TEXT NOT NULL DEFAULT 'null';
ALTER TABLE jobs ADD COLUMN changes TEXT NOT NULL DEFAULT '[]';
-- what operations last saw of a job's shape
ALTER TABLE operations ADD COLUMN seen TEXT NOT NULL DEFAULT 'null';
CREATE TABLE progress_by_trial (
    job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    restarts INTEGER NOT NULL, trial INTEGER NOT NULL DEFAULT 0, iteration REAL NOT NULL,
    time REAL NOT NULL, quantities TEXT NOT NULL,
    PRIMARY KEY (job, restarts, trial, iteration)
) WITHOUT ROWID;
INSERT INTO progress_by_trial (job, restarts, iteration, time, quantities)
    SELECT job, restarts, iteration, time, quantities FROM progress;
DROP TABLE progress;
ALTER TABLE progress_by_trial RENAME TO progress;
ALTER TABLE jobs ADD COLUMN trial INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN trials TEXT NOT NULL DEFAULT '[]';
ALTER TABLE jobs ADD COLUMN first_iteration REAL;
UPDATE jobs SET
    first_iteration = (SELECT iteration FROM progress WHERE job = id ORDER BY restarts, iteration LIMIT 1),
    trials = (SELECT CASE WHEN count(*) THEN json_array(json_array('', min(time))) ELSE '[]' END
        FROM progress WHERE job = id);
DROP VIEW history;
DROP VIEW stops;
CREATE VIEW stops AS
    SELECT job, rule AS stop FROM operations JOIN jobs ON jobs.id = operations.job
    WHERE kind = 'stop' AND step = 'ended' AND (outcome = 'cancelled' OR (outcome = 'stopped' AND (
        jobs.state = 'COMPLETED'
        OR (jobs.state = 'FAILED' AND exit_code = 1 AND json_extract(directives, '$.require_target') = 'yes'))));
CREATE VIEW history AS
    SELECT jobs.*, end - start AS runtime FROM jobs
    WHERE ended = 1 AND state = 'COMPLETED' AND start IS NOT NULL AND end > start
    AND id NOT IN (SELECT job FROM stops);
UPDATE operations SET facts = json_remove(facts, '$.by', '$.by_rank')
WHERE rule = 'gives way' AND json_valid(facts) AND json_type(facts, '$.by') IN ('integer', 'real');
UPDATE decisions SET facts = json_remove(facts, '$.by', '$.by_rank')
WHERE rule = 'gives way' AND json_valid(facts) AND json_type(facts, '$.by') IN ('integer', 'real');
ALTER TABLE jobs ADD COLUMN factor_compared REAL;
ALTER TABLE jobs ADD COLUMN factor_booted REAL;
ALTER TABLE jobs ADD COLUMN factor_by_others INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN script_digest TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN in_doubt INTEGER NOT NULL DEFAULT 0;
""",
    """
ALTER TABLE jobs ADD COLUMN gpu_type_held TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN shards INTEGER NOT NULL DEFAULT 0;
""",
    """
-- what its user asked for: GPUs, CPUs, MiB; of jobs that have what a resize gave them, as before the first one
ALTER TABLE jobs ADD COLUMN requested TEXT NOT NULL DEFAULT '[0, 0, 0.0]';
UPDATE jobs SET requested = json_array(coalesce(gpus, 0), coalesce(cpus, 0), coalesce(memory, 0.0));
WITH given AS (
    SELECT job, opened, json_extract(noted, '$.gpus_before') AS before, json_extract(noted, '$.gpus') AS after
    FROM operations WHERE kind = 'resize' AND (outcome IN ('done', 'progress lost') OR step != 'ended')
), first AS (SELECT job, before, min(opened) FROM given GROUP BY job)
UPDATE jobs SET requested = json_array(before, max(1, cpus * before / gpus), memory * before / gpus) FROM first
WHERE job = id AND before > 0 AND gpus > 0 AND gpus IN (SELECT after FROM given WHERE given.job = id);
""",
    """
-- models of learnt policies, by digest; role: candidate, shadow or acting
CREATE TABLE policy_models (
    digest TEXT PRIMARY KEY, policy TEXT NOT NULL, version INTEGER NOT NULL, facts TEXT NOT NULL, file BLOB NOT NULL,
    added REAL NOT NULL, added_by TEXT NOT NULL, role TEXT NOT NULL DEFAULT 'candidate'
);
CREATE UNIQUE INDEX policy_models_role ON policy_models (role) WHERE role != 'candidate';
CREATE TABLE model_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL REFERENCES policy_models ON DELETE CASCADE,
    at REAL NOT NULL, cycle INTEGER NOT NULL, by TEXT NOT NULL,
    event TEXT NOT NULL, reason TEXT NOT NULL, evidence TEXT NOT NULL
);
CREATE TABLE model_evaluations (
    id INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL REFERENCES policy_models ON DELETE CASCADE,
    at REAL NOT NULL, by TEXT NOT NULL, against TEXT NOT NULL, workload TEXT NOT NULL, cluster TEXT NOT NULL,
    seeds TEXT NOT NULL, figures TEXT NOT NULL
);
CREATE TABLE model_cycles (
    cycle INTEGER NOT NULL REFERENCES cycles ON DELETE CASCADE,
    model TEXT NOT NULL REFERENCES policy_models ON DELETE CASCADE,
    role TEXT NOT NULL, error TEXT NOT NULL, ranks REAL, actions REAL, gain REAL,
    PRIMARY KEY (cycle, model)
) WITHOUT ROWID;
CREATE INDEX model_cycles_model ON model_cycles (model, role, cycle);
-- what was forecast of jobs that waited, and who ranked them: the digest of a model, or a policy
CREATE TABLE foreseen_waits (
    job INTEGER PRIMARY KEY REFERENCES jobs ON DELETE CASCADE,
    ranked_by TEXT NOT NULL, at REAL NOT NULL, expected REAL NOT NULL
);
CREATE INDEX foreseen_waits_ranked_by ON foreseen_waits (ranked_by, at);
""",
    """
-- the inputs of a cycle are the difference to those of this one, where it is not NULL
ALTER TABLE cycles ADD COLUMN inputs_base INTEGER;
CREATE INDEX cycles_inputs ON cycles (started, inputs_base, length(inputs)) WHERE inputs IS NOT NULL;
CREATE TABLE progress_size (job INTEGER PRIMARY KEY REFERENCES jobs ON DELETE CASCADE, bytes INTEGER NOT NULL);
INSERT INTO progress_size SELECT job, sum(length(quantities) + 64) FROM progress GROUP BY job;
CREATE TRIGGER progress_added AFTER INSERT ON progress BEGIN
    INSERT INTO progress_size VALUES (NEW.job, length(NEW.quantities) + 64)
    ON CONFLICT (job) DO UPDATE SET bytes = bytes + excluded.bytes; END;
CREATE TRIGGER progress_changed AFTER UPDATE OF quantities ON progress BEGIN
    UPDATE progress_size SET bytes = bytes + length(NEW.quantities) - length(OLD.quantities) WHERE job = NEW.job; END;
CREATE TRIGGER progress_deleted AFTER DELETE ON progress BEGIN
    UPDATE progress_size SET bytes = bytes - length(OLD.quantities) - 64 WHERE job = OLD.job; END;
""",
    """
-- bytes that an ended job takes with all that hangs on it but its reports; NULL before it was weighed
ALTER TABLE jobs ADD COLUMN weight INTEGER;
CREATE INDEX jobs_weighed ON jobs (user, last_seen, weight) WHERE ended = 1 AND listed = 0;
""",
    """
-- the last value of each quantity, as `last_reports`; NULL of jobs that have not changed since
ALTER TABLE jobs ADD COLUMN last_reported TEXT;
-- of elements of an array that are pending together, which: 0-2,7; empty where not known
ALTER TABLE jobs ADD COLUMN array_tasks TEXT NOT NULL DEFAULT '';
""",
    """
-- how much its GPUs were in use: the sum of the shares that it reported, and how many these were
ALTER TABLE jobs ADD COLUMN gpu_use TEXT NOT NULL DEFAULT '[0.0, 0]';
""",
    """
-- when the policy took the cluster for overloaded: from the first to the last of the cycles in a row that did
CREATE TABLE overloads (began REAL PRIMARY KEY, last REAL NOT NULL);
CREATE INDEX jobs_end ON jobs (end) WHERE ended = 1;
""",
    """
-- the last forecast of when all jobs start and end; of each job the first one that was made while it waited
CREATE TABLE queue_forecast (id INTEGER PRIMARY KEY CHECK (id = 1), at REAL NOT NULL, told BLOB NOT NULL);
CREATE TABLE foreseen_starts (
    job INTEGER PRIMARY KEY REFERENCES jobs ON DELETE CASCADE, at REAL NOT NULL,
    start REAL NOT NULL, start_low REAL, start_high REAL, end REAL, end_low REAL, end_high REAL
);
CREATE INDEX foreseen_starts_at ON foreseen_starts (at);
""",
    """
-- what users were told of a job by mail or a web service, each kind of it once; result: sent, unknown, or what failed
CREATE TABLE notifications (
    job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE, kind TEXT NOT NULL, at REAL NOT NULL, result TEXT NOT NULL,
    PRIMARY KEY (job, kind)
) WITHOUT ROWID;
""",
    """
-- seconds of its last run in which it was suspended, which are no run time
ALTER TABLE jobs ADD COLUMN suspended REAL NOT NULL DEFAULT 0.0;
DROP VIEW history;
CREATE VIEW history AS
    SELECT jobs.*, end - start - suspended AS runtime FROM jobs
    WHERE ended = 1 AND state = 'COMPLETED' AND start IS NOT NULL AND end - start > suspended
    AND id NOT IN (SELECT job FROM stops);
""",
    """
-- again: by which of mail and webhook it was certainly not sent, and is tried again; at: when it was tried last
ALTER TABLE notifications ADD COLUMN again TEXT NOT NULL DEFAULT '';
ALTER TABLE notifications ADD COLUMN tries INTEGER NOT NULL DEFAULT 1;
""",
    """
-- seconds of idle GPUs after which it said that the job is stopped; NULL where it did not say so
ALTER TABLE notifications ADD COLUMN announced REAL;
-- with when its GPUs were in use last: not before this migration, as that was not kept
UPDATE jobs SET gpu_use = json_array(json_extract(gpu_use, '$[0]'), json_extract(gpu_use, '$[1]'), last_seen)
WHERE ended = 0;
""",
    """
-- of arrays that waited for their throttle alone: the last such cycle, how many these were, and seconds; these times
-- how many more elements the idle nodes could have run; and the GPU seconds that its elements could have used of those
-- that idled
CREATE TABLE throttled_arrays (
    job INTEGER PRIMARY KEY REFERENCES jobs ON DELETE CASCADE, last REAL NOT NULL, cycles INTEGER NOT NULL,
    seconds REAL NOT NULL, more_seconds REAL NOT NULL, gpu_seconds REAL NOT NULL
);
""",
)

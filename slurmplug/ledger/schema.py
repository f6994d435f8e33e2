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
-- what its user asked for: GPUs, CPUs, MiB; of jobs that were resized, as before the first time
ALTER TABLE jobs ADD COLUMN requested TEXT NOT NULL DEFAULT '[0, 0, 0.0]';
UPDATE jobs SET requested = json_array(coalesce(gpus, 0), coalesce(cpus, 0), coalesce(memory, 0.0));
UPDATE jobs SET requested = json_array(before, max(1, cpus * before / gpus), memory * before / gpus) FROM (
    SELECT job, json_extract(noted, '$.gpus_before') AS before, min(opened) FROM operations
    WHERE kind = 'resize' AND outcome IN ('done', 'progress lost') GROUP BY job
) WHERE job = id AND before > 0 AND gpus > 0;
""",
)

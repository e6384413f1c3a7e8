-- The tables: one row a key, the entries of logs, and what tells that state was lost.
--
-- No file here names a schema. `init` puts the chosen one first in the search path, and each function that may
-- be called from outside keeps that path for good. All integers are whole microseconds or units of a law
-- (core/law.py); nothing is a float, and nothing reads the time zone or the locale.
--
-- A row of `state` is a state of core/: the law's own numbers, so that it explains itself after the limit was
-- changed, and what is remembered of the key. The columns that a law does not know are null.
--
--              L  level, line           F  fixed window      S  two counters        G  log
--   room       capacity in units        capacity             capacity               capacity
--   q, p       units in a token, units
--              that drain in a us
--   length_us                           window, if even      window                 window
--   parts                                                    ticks in a window
--   calendar                            "month:Europe/Berlin"
--   used       level                    counted              counted                running total
--   before                                                   of the window before   total that counts no more
--   given_back given back since busy
--   start_us                            of the window        of the window          what counts is later
--   end_us                              of the window                               the newest entry
--   series                                                                          which entries are its own
--
-- A key of more than a thousand bytes is named by its digest, for an index holds no longer ones (places.py); then
-- `whole` says what it is in full, and is null otherwise.
-- A row whose kind is null only holds its place: the key was never charged. One of kind N says that it was made
-- fresh when nothing was known of it: no strict rule takes it for one that was lost.
-- `sweep_at_us` is when the row may go: its key has been fresh for a minute by then. It is rounded up to a whole
-- minute, so that most changes of a row leave the index alone.

CREATE UNLOGGED TABLE state (
  rule bytea NOT NULL,
  key bytea NOT NULL,
  sweep_at_us bigint NOT NULL,
  kind "char",
  room bigint,
  q bigint,
  p bigint,
  length_us bigint,
  parts bigint,
  calendar text COLLATE "C",
  used bigint,
  before bigint,
  at_us bigint,
  busy_since_us bigint,
  given_back bigint,
  start_us bigint,
  end_us bigint,
  series bigint,
  whole bytea,
  PRIMARY KEY (rule, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX state_sweep ON state (sweep_at_us);

-- What a log remembers: `total` is what was spent in its series up to and with this instant.
CREATE UNLOGGED TABLE entries (
  rule bytea NOT NULL,
  key bytea NOT NULL,
  series bigint NOT NULL,
  at_us bigint NOT NULL,
  total bigint NOT NULL,
  PRIMARY KEY (rule, key, series, at_us)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- Since when nothing has been lost; 0 if nothing ever was. It is lost together with the rest.
CREATE UNLOGGED TABLE epoch (
  single boolean PRIMARY KEY DEFAULT true CHECK (single),
  since_us bigint NOT NULL
);

INSERT INTO epoch (since_us) VALUES (0);

-- A law as a charge names it. `own` and `free` are a line's; `edges_us` are the first instants of the
-- calendar's windows before, of, and after the caller's idea of now, and the first instant after these.
CREATE TYPE law AS (
  kind "char",
  room bigint,
  q bigint,
  p bigint,
  length_us bigint,
  parts bigint,
  calendar text,
  own bigint,
  free bigint,
  edges_us bigint[]
);

-- Which version of all this a database has, and when it got there.
CREATE TABLE version (
  number int PRIMARY KEY,
  made_at timestamptz NOT NULL DEFAULT now()
);

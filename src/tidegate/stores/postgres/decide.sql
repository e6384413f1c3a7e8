-- Decide requests, each all-or-nothing, one after another at one instant (core/compose.py).
--
-- Called once per round trip, as the only statement of its transaction, at READ COMMITTED.
--
--   of_rules, of_keys   the keys of all requests, each once, in an order that all callers share: they are locked
--                       in this order, one after another, so no two calls wait for each other
--   numbers             1 version of the schema, 2 whether to leave out what others hold, 3 whether to look before
--                       locking, 4 whether a strict rule may use a store that forgets, 5 lock timeout in ms (0: the
--                       session's), 6 whether an instant is told, 7 that instant, 8 how many requests; then for each
--                       request whether to take (0: only ask), how many charges, and for each of these 13 numbers:
--                       0 place among the keys, 1 kind (1 level, 2 line, 3 fixed, 4 two counters, 5 log), 2 capacity
--                       in units, 3 q or the length in us (0: a calendar), 4 p or the parts, 5 own, 6 free, 7 cost in
--                       thousandths, 8 patience in us (-1: none), 9 shadow, 10 carry, 11 strict, 12 calendar
--   calendars, edges_us the names of calendars, and four edges of windows for each
--
-- The reply: the instant; then for each request 0 and 6 numbers a charge: 1 if it fits + 2 if it was charged, and
-- of the state after: used, at, busy since, and for a level what was given back, for a fixed window its two ends,
-- for two counters the start and the count before, for a log the instant that frees enough and the newest one.
-- Or a request was not decided: 1 and the instant that is in no window that was told; 2: a strict rule, and the
-- tables are not logged; 3: a strict rule, and commits do not wait for the disk; 4: nor for the standbys; 5: nor
-- the server for the disk; 9: another transaction holds a row of it, and such ones were to be left out.
--
-- Who is only refused changes nothing, so looking is enough: no lock, nothing written. Where a look finds that
-- something must be written, the keys are locked, read again and decided again, at an instant read after the
-- locks. A key that was never charged gets a row before anything is locked: so whoever waits for such a row
-- holds rows of that kind only, and whoever waits for a lock waits for one that comes later in the order.
-- A row of kind X stands for one that another transaction holds; it is never written.

-- Why a strict rule must not rely on this store: 2 to 5, or 0 if it may. Whoever may not see standbys sees that
-- there are some.
CREATE OR REPLACE FUNCTION forgets() RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN (SELECT relpersistence <> 'p' FROM pg_catalog.pg_class WHERE oid = 'state'::regclass) THEN 2
    WHEN current_setting('synchronous_commit') = 'off' THEN 3
    WHEN (current_setting('synchronous_standby_names') = '' OR current_setting('synchronous_commit') = 'local')
      AND EXISTS (SELECT FROM pg_catalog.pg_stat_replication) THEN 4
    WHEN current_setting('fsync') = 'off' THEN 5
    ELSE 0
  END
$$;

-- When nothing has been lost since; null if nothing ever was. Where that is lost too, from now on.
CREATE OR REPLACE FUNCTION epoch_us(now_us bigint, may_write boolean) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  since bigint := (SELECT e.since_us FROM epoch e);
BEGIN
  IF since IS NULL THEN
    since := now_us;
    IF may_write THEN
      INSERT INTO epoch (since_us) VALUES (now_us) ON CONFLICT DO NOTHING;
      since := (SELECT e.since_us FROM epoch e);
    END IF;
  END IF;
  RETURN nullif(since, 0);
END
$$;

-- The law that a charge names; `at` is where its numbers begin.
CREATE OR REPLACE FUNCTION law_of(numbers bigint[], at int, calendars text[], edges_us bigint[])
RETURNS law LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  l law;
  named CONSTANT bigint := numbers[at + 12];
BEGIN
  l.kind := (ARRAY['L', 'L', 'F', 'S', 'G'])[numbers[at + 1]];
  l.room := numbers[at + 2];
  IF l.kind = 'L' THEN
    l.q := numbers[at + 3];
    l.p := numbers[at + 4];
    RETURN l;
  END IF;
  l.length_us := nullif(numbers[at + 3], 0);
  l.parts := nullif(numbers[at + 4], 0);
  IF named > 0 THEN
    l.calendar := calendars[named];
    l.edges_us := edges_us[named * 4 - 3 : named * 4];
  END IF;
  RETURN l;
END
$$;

-- The state of a charge's key at an instant, where it is not a level of the same numbers that goes forward.
CREATE OR REPLACE FUNCTION state_at(
  INOUT s state, numbers bigint[], n int, calendars text[], edges_us bigint[], now_us bigint, epoch_us bigint,
  OUT is_changed boolean
) LANGUAGE plpgsql STABLE AS $$
DECLARE
  l law := law_of(numbers, n, calendars, edges_us);
BEGIN
  is_changed := coalesce(s.kind, 'N') <> 'N' AND is_change(s, l);
  s := current_state(s, l, now_us, numbers[n + 10], CASE WHEN numbers[n + 11] = 1 THEN epoch_us END);
END
$$;

-- Whether the cost is admitted; `n` is where the charge's numbers begin.
CREATE OR REPLACE FUNCTION fits(s state, numbers bigint[], n int) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  exact CONSTANT bigint := 9007199254740991;  -- 2^53 - 1
  cost CONSTANT bigint := numbers[n + 7];
  patience_us CONSTANT bigint := numbers[n + 8];
  grain CONSTANT bigint := s.q / 1000;
  room bigint := s.room;
BEGIN
  IF s.kind <> 'L' THEN
    RETURN used_of(s) + cost <= room;
  ELSIF numbers[n + 1] = 2 THEN  -- a line: patience adds no room, for it is finite
    RETURN s.used <= room AND cost <= (room - s.used) / grain
      AND (patience_us < 0
           OR hold_us(s.used, cost * grain, s.p, numbers[n + 5], numbers[n + 6]) <= patience_us);
  ELSIF patience_us > 0 AND cost <= room / grain AND s.p > 0 THEN
    room := room + s.p * least(patience_us, (exact - 2 * room) / s.p);
  END IF;
  RETURN s.used <= room AND cost <= (room - s.used) / grain;
END
$$;

-- What the reply says of a state that is no level.
CREATE OR REPLACE FUNCTION told(s state, numbers bigint[], n int, is_fit boolean) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
  excess bigint;
BEGIN
  IF s.kind = 'F' THEN
    RETURN ARRAY[s.used, s.at_us, s.busy_since_us, s.start_us, s.end_us];
  ELSIF s.kind = 'S' THEN
    RETURN ARRAY[s.used, s.at_us, s.busy_since_us, s.start_us, s.before];
  END IF;
  excess := used_of(s) + numbers[n + 7] - s.room;
  RETURN ARRAY[
    used_of(s), s.at_us, s.busy_since_us,
    CASE WHEN NOT is_fit AND excess <= used_of(s) THEN log_instant(s, excess) ELSE s.end_us END,
    s.end_us
  ];
END
$$;

CREATE OR REPLACE FUNCTION decide(
  of_rules bytea[], of_keys bytea[], numbers bigint[], calendars text[], edges_us bigint[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  is_locked boolean := numbers[3] = 0;
  now_us bigint;
  alone record;       -- where there is one key: its row, and where that is
  places tid[];       -- where the rows are
  states state[];     -- of all keys, as they are by now
  sweeps bigint[];    -- of those that must be written: when they may go
  reply bigint[];
  n int;              -- where the next number is read
  first int;
  size int;
  refusal bigint;
  takes boolean;      -- of one request: whether it is to be charged
  passes boolean;     -- and whether it is
  seen state[];       -- the states at the instant
  verdicts bigint[];  -- 1 if it fits, and 2 if it must be written even if it is not charged
  verdict bigint;
  at bigint;
  found_now record;
  s state;
  epoch bigint;
  is_epoch_known boolean;
BEGIN
  IF numbers[1] <> version_number() OR numbers[5] <> 0
    OR current_setting('transaction_isolation') <> 'read committed'
    OR current_setting('transaction_read_only') = 'on'
  THEN
    refusal := checked_call(numbers);
  END IF;
  LOOP
    IF is_locked THEN
      IF cardinality(of_rules) = 1 THEN  -- what is below does the same, and costs more
        SELECT t.ctid AS place, t AS s INTO alone
        FROM state t WHERE t.rule = of_rules[1] AND t.key = of_keys[1] FOR NO KEY UPDATE;
        states := CASE WHEN alone.place IS NOT NULL THEN ARRAY[alone.s] END;
      ELSIF numbers[2] = 1 THEN
        SELECT
          array_agg(k.place ORDER BY u.number),
          array_agg(coalesce(k.s, jsonb_populate_record(NULL::state, '{"kind": "X"}')) ORDER BY u.number)
        INTO places, states
        FROM unnest(of_rules, of_keys) WITH ORDINALITY u (rule, key, number)
          LEFT JOIN LATERAL (
            SELECT t.ctid AS place, t AS s FROM state t
            WHERE t.rule = u.rule AND t.key = u.key FOR NO KEY UPDATE SKIP LOCKED
          ) k ON true;
      ELSE
        SELECT array_agg(k.place), array_agg(k.s) INTO places, states
        FROM unnest(of_rules, of_keys) u (rule, key),
          LATERAL (
            SELECT t.ctid AS place, t AS s FROM state t
            WHERE t.rule = u.rule AND t.key = u.key FOR NO KEY UPDATE
          ) k;
      END IF;
      IF cardinality(states) IS DISTINCT FROM cardinality(of_rules) THEN
        RAISE EXCEPTION 'a key was forgotten' USING ERRCODE = 'TG001';
      END IF;
    ELSE
      SELECT array_agg((SELECT t FROM state t WHERE t.rule = u.rule AND t.key = u.key)) INTO states
      FROM unnest(of_rules, of_keys) u (rule, key);
    END IF;
    now_us := CASE WHEN numbers[6] = 1 THEN numbers[7] ELSE clock_us() END;
    reply := ARRAY[now_us];
    sweeps := NULL;
    n := 9;

    FOR request IN 1 .. numbers[8] LOOP
      takes := numbers[n] = 1;
      size := numbers[n + 1];
      n := n + 2;
      first := n;
      passes := takes;
      refusal := 0;

      FOR c IN 1 .. size LOOP
        s := states[numbers[n]];
        IF numbers[n + 1] <= 2 AND numbers[n + 8] < 0 AND numbers[n + 11] = 0
          AND (s.kind = 'L' AND now_us >= s.at_us AND s.room = numbers[n + 2] AND s.q = numbers[n + 3]
               AND s.p = numbers[n + 4] OR s.kind IS NULL)
        THEN
          IF s.kind IS NULL THEN  -- as `unknown` says
            s := ROW(
              NULL, NULL, s.sweep_at_us, 'L', numbers[n + 2], numbers[n + 3], numbers[n + 4], NULL, NULL, NULL,
              0, NULL, now_us, now_us - 1, 0, NULL, NULL, NULL, NULL
            )::state;
          ELSE  -- as `level_advance` says
            s.used := CASE
              WHEN s.p = 0 OR s.used = 0 THEN s.used
              WHEN now_us - s.at_us < (s.used + s.p - 1) / s.p THEN s.used - s.p * (now_us - s.at_us)
              ELSE 0
            END;
            s.at_us := now_us;
          END IF;
          verdict := CASE
            WHEN s.used <= s.room AND numbers[n + 7] <= (s.room - s.used) / (s.q / 1000) THEN 1 ELSE 0
          END;
        ELSE
          IF s.kind = 'X' THEN
            refusal := 9;
            EXIT;
          END IF;
          at := s.at_us;
          IF numbers[n + 11] = 1 THEN
            refusal := CASE WHEN numbers[4] = 1 THEN 0 ELSE forgets() END;
            EXIT WHEN refusal <> 0;
            IF s.kind IS NULL AND is_epoch_known IS NULL THEN
              epoch := epoch_us(now_us, takes);
              is_epoch_known := true;
            END IF;
          END IF;
          s.rule := of_rules[numbers[n]];
          s.key := of_keys[numbers[n]];
          found_now := state_at(s, numbers, n, calendars, edges_us, now_us, epoch);
          s := found_now.s;
          IF s.kind = 'F' AND s.start_us IS NULL THEN
            refusal := 1;
            at := s.at_us;
            EXIT;
          END IF;
          verdict := CASE WHEN fits(s, numbers, n) THEN 1 ELSE 0 END
            + CASE WHEN numbers[n + 7] > 0 AND (found_now.is_changed OR s.at_us < at) THEN 2 ELSE 0 END;
        END IF;
        passes := passes AND (verdict % 2 = 1 OR numbers[n + 9] = 1);
        verdicts[c] := verdict;
        seen[c] := s;
        n := n + 13;
      END LOOP;

      n := first;
      IF refusal <> 0 THEN
        reply := reply || CASE WHEN refusal = 1 THEN ARRAY[refusal, at] ELSE ARRAY[refusal] END;
        n := n + 13 * size;
        CONTINUE;
      END IF;
      reply := reply || 0::bigint;

      FOR c IN 1 .. size LOOP
        s := seen[c];
        verdict := verdicts[c];
        IF passes AND verdict % 2 = 1 AND numbers[n + 7] > 0 THEN
          verdict := verdict + 4;
          IF s.kind = 'L' THEN  -- as `spend` says
            IF s.used = 0 THEN
              s.busy_since_us := begun_us(s.at_us, s.busy_since_us);
              s.given_back := 0;
            END IF;
            s.used := s.used + numbers[n + 7] * (s.q / 1000);
          ELSE
            s := spend(s, numbers[n + 7]);
          END IF;
        END IF;
        IF verdict >= 2 AND takes THEN
          states[numbers[n]] := s;
          IF sweeps IS NULL THEN
            sweeps := array_fill(NULL::bigint, ARRAY[cardinality(of_rules)]);
          END IF;
          sweeps[numbers[n]] := CASE
            WHEN s.kind = 'L' AND s.p > 0 AND numbers[6] = 0 AND numbers[n + 11] = 0
            THEN ((now_us + 60000000 + (s.used + s.p - 1) / s.p) / 60000000 + 1) * 60000000
            ELSE sweep_instant_us(s, now_us, numbers[6] = 1, numbers[n + 11] = 1)
          END;
          IF s.kind = 'G' AND is_locked THEN
            refusal := log_write(s);
          END IF;
        END IF;
        IF s.kind = 'L' THEN
          reply := reply || ARRAY[
            CASE WHEN verdict >= 4 THEN 3 ELSE verdict % 2 END, s.used, s.at_us, s.busy_since_us,
            CASE WHEN s.used = 0 THEN 0 ELSE s.given_back END, 0
          ];
        ELSE
          reply := reply || CASE WHEN verdict >= 4 THEN 3 ELSE verdict % 2 END
            || told(s, numbers, n, verdict % 2 = 1);
        END IF;
        n := n + 13;
      END LOOP;
    END LOOP;

    IF sweeps IS NULL THEN
      RETURN reply;
    END IF;
    EXIT WHEN is_locked;
    IF cardinality(of_rules) = 1 AND states[1].sweep_at_us IS NULL THEN  -- a new key alone needs no lock
      s := states[1];
      INSERT INTO state VALUES (
        of_rules[1], of_keys[1], sweeps[1], s.kind, s.room, s.q, s.p, s.length_us, s.parts, s.calendar, s.used,
        s.before, s.at_us, s.busy_since_us, s.given_back, s.start_us, s.end_us, s.series
      ) ON CONFLICT DO NOTHING;
      IF FOUND THEN
        refusal := CASE WHEN s.kind = 'G' THEN log_write(s) END;
        RETURN reply;
      END IF;
    END IF;
    refusal := hold_places(of_rules, of_keys, states);
    is_locked := true;
  END LOOP;

  IF cardinality(of_rules) > 1 THEN
    UPDATE state t SET
      sweep_at_us = w.sweep_us, kind = w.kind, room = w.room, q = w.q, p = w.p, length_us = w.length_us,
      parts = w.parts, calendar = w.calendar, used = w.used, before = w.before, at_us = w.at_us,
      busy_since_us = w.busy_since_us, given_back = w.given_back, start_us = w.start_us, end_us = w.end_us,
      series = w.series
    FROM unnest(places, sweeps, states) w (
      place, sweep_us, rule, key, sweep_at_us, kind, room, q, p, length_us, parts, calendar, used, before,
      at_us, busy_since_us, given_back, start_us, end_us, series
    )
    WHERE t.ctid = w.place AND w.sweep_us IS NOT NULL;
  ELSE
    s := states[1];
    UPDATE state t SET
      sweep_at_us = sweeps[1], kind = s.kind, room = s.room, q = s.q, p = s.p, length_us = s.length_us,
      parts = s.parts, calendar = s.calendar, used = s.used, before = s.before, at_us = s.at_us,
      busy_since_us = s.busy_since_us, given_back = s.given_back, start_us = s.start_us, end_us = s.end_us,
      series = s.series
    WHERE t.ctid = alone.place;
  END IF;
  RETURN reply;
END
$$;

-- `decide` for keys of which some are named by their digests: `wholes` are these in full, '' for the others.
CREATE OR REPLACE FUNCTION decide_named(
  of_rules bytea[], of_keys bytea[], numbers bigint[], calendars text[], edges_us bigint[], wholes bytea[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  reply CONSTANT bigint[] := decide(of_rules, of_keys, numbers, calendars, edges_us);
  named CONSTANT bigint := name_rows(of_rules, of_keys, wholes);
BEGIN
  RETURN reply;
END
$$;

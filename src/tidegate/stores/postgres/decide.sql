-- Decide requests, each all-or-nothing, one after another at one instant (core/compose.py).
--
-- `decide` (levels.sql) is called once per round trip, as the only statement of its transaction, at READ
-- COMMITTED. It decides the common case itself and hands all others to `decide_any`, with the same parameters.
--
--   of_rules, of_keys   the keys of all requests, each once, in an order that all callers share: they are locked
--                       in this order, one after another, so no two calls wait for each other
--   numbers             1 version of the schema, 2 unused, 3 whether to look before locking, 4 whether a strict
--                       rule may use a store that forgets, 5 lock timeout in ms (0: the session's), 6 whether an
--                       instant is told, 7 that instant, 8 how many requests; then for each request whether to
--                       take (0: only ask), how many charges, and for each of these 13 numbers: 0 place among
--                       the keys, 1 kind (1 level, 2 line, 3 fixed, 4 two counters, 5 log), 2 capacity in units,
--                       3 q or the length in us (0: a calendar), 4 p or the parts, 5 own, 6 free, 7 cost in
--                       thousandths, 8 patience in us (-1: none), 9 shadow, 10 carry, 11 strict, 12 calendar
--   calendars, edges_us the names of calendars, and four edges of windows for each
--
-- The reply: the instant; then for each request 0 and 6 numbers a charge: 1 if it fits + 2 if it was charged, and
-- of the state after: used, at, busy since, and for a level what was given back, for a fixed window its two ends,
-- for two counters the start and the count before, for a log the instant that frees enough and the newest one.
-- Or a request was not decided: 1 and the instant that is in no window that was told; 2: a strict rule, and the
-- tables are not logged; 3: a strict rule, and commits do not wait for the disk.
--
-- Who is only refused changes nothing, so looking is enough: no lock, nothing written. Where a look finds that
-- something must be written, the keys are locked, read again and decided again, at an instant read after the
-- locks. A key that was never charged gets a row before anything is locked: so whoever waits for such a row
-- holds rows of that kind only, and whoever waits for a lock waits for one that comes later in the order.

CREATE OR REPLACE FUNCTION clock_us() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- Why a strict rule must not rely on this store: 2, 3, or 0 if it may.
CREATE OR REPLACE FUNCTION forgets() RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN (SELECT relpersistence <> 'p' FROM pg_catalog.pg_class WHERE oid = 'state'::regclass) THEN 2
    WHEN current_setting('synchronous_commit') = 'off' THEN 3
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

-- When the row may go, if its state is kept at `now_us`: `allowance_us` after the key is fresh, by the real clock.
CREATE OR REPLACE FUNCTION sweep_instant_us(s state, now_us bigint, real_us bigint, allowance_us bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  fresh_us CONSTANT bigint := fresh_at_us(s);
BEGIN
  IF fresh_us IS NULL THEN
    RETURN 9223372036854775807;
  END IF;
  RETURN ((real_us + greatest(0, fresh_us - now_us) + allowance_us) / 60000000 + 1) * 60000000;
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
  is_changed := s.kind IS NOT NULL AND is_change(s, l);
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
CREATE OR REPLACE FUNCTION told(s state, numbers bigint[], n int, answer bigint) RETURNS bigint[]
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
    CASE WHEN answer = 0 AND excess <= used_of(s) THEN log_instant(s, excess) ELSE s.end_us END,
    s.end_us
  ];
END
$$;

CREATE OR REPLACE FUNCTION decide_any(
  of_rules bytea[], of_keys bytea[], numbers bigint[], calendars text[], edges_us bigint[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  is_locked boolean := numbers[3] = 0;
  now_us bigint;
  places tid[];       -- where the rows are
  states state[];     -- of all keys, as they are by now
  writes bigint[];    -- 1 for those that must be written
  must_write boolean; -- whether there is one
  reply bigint[];
  n int;              -- where the next number is read
  first int;
  size int;
  refusal bigint;
  answer bigint;
  takes boolean;      -- of one request: whether it is to be charged
  passes boolean;     -- and whether it is
  seen state[];       -- the states at the instant
  does_fit boolean[];
  is_kept boolean[];  -- written even if not charged
  at bigint;
  found record;
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
      SELECT array_agg(k.place), array_agg(k.s) INTO places, states
      FROM unnest(of_rules, of_keys) u (rule, key),
        LATERAL (
          SELECT t.ctid AS place, t AS s FROM state t WHERE t.rule = u.rule AND t.key = u.key FOR NO KEY UPDATE
        ) k;
      IF cardinality(states) IS DISTINCT FROM cardinality(of_rules) THEN
        RAISE EXCEPTION 'a key was forgotten' USING ERRCODE = 'TG001';
      END IF;
    ELSE
      SELECT array_agg(k.s) INTO states
      FROM unnest(of_rules, of_keys) u (rule, key)
        LEFT JOIN LATERAL (
          SELECT t AS s FROM state t WHERE t.rule = u.rule AND t.key = u.key LIMIT 1
        ) k ON true;
    END IF;
    now_us := CASE WHEN numbers[6] = 1 THEN numbers[7] ELSE clock_us() END;
    reply := ARRAY[now_us];
    writes := array_fill(0::bigint, ARRAY[cardinality(of_rules)]);
    must_write := false;
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
        IF s.kind = 'L' AND now_us >= s.at_us AND s.room = numbers[n + 2] AND s.q = numbers[n + 3]
          AND s.p = numbers[n + 4] AND numbers[n + 1] <= 2 AND numbers[n + 11] = 0
        THEN  -- as level_advance says
          s.used := CASE
            WHEN s.p = 0 OR s.used = 0 THEN s.used
            WHEN now_us - s.at_us < (s.used + s.p - 1) / s.p THEN s.used - s.p * (now_us - s.at_us)
            ELSE 0
          END;
          s.at_us := now_us;
          is_kept[c] := false;
        ELSE
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
          found := state_at(s, numbers, n, calendars, edges_us, now_us, epoch);
          s := found.s;
          is_kept[c] := numbers[n + 7] > 0 AND (found.is_changed OR coalesce(s.at_us < at, false));
          IF s.kind = 'F' AND s.start_us IS NULL THEN
            refusal := 1;
            at := s.at_us;
            EXIT;
          END IF;
        END IF;

        IF numbers[n + 1] <= 1 AND numbers[n + 8] < 0 THEN
          does_fit[c] := s.used <= s.room AND numbers[n + 7] <= (s.room - s.used) / (s.q / 1000);
        ELSE
          does_fit[c] := fits(s, numbers, n);
        END IF;
        IF does_fit[c] IS NOT TRUE AND numbers[n + 9] = 0 THEN
          passes := false;
        END IF;
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
        IF passes AND does_fit[c] AND numbers[n + 7] > 0 THEN
          answer := 3;
          IF s.kind = 'L' THEN
            IF s.used = 0 THEN
              s.busy_since_us := begun_us(s.at_us, s.busy_since_us);
              s.given_back := 0;
            END IF;
            s.used := s.used + numbers[n + 7] * (s.q / 1000);
          ELSE
            s := spend(s, numbers[n + 7]);
          END IF;
        ELSE
          answer := CASE WHEN does_fit[c] THEN 1 ELSE 0 END;
        END IF;
        IF answer = 3 OR is_kept[c] AND takes THEN
          states[numbers[n]] := s;
          writes[numbers[n]] := 1;
          must_write := true;
        END IF;
        IF s.kind = 'L' THEN
          reply := reply || ARRAY[
            answer, s.used, s.at_us, s.busy_since_us, CASE WHEN s.used = 0 THEN 0 ELSE s.given_back END, 0
          ];
        ELSE
          reply := reply || answer || told(s, numbers, n, answer);
        END IF;
        n := n + 13;
      END LOOP;
    END LOOP;

    EXIT WHEN is_locked OR NOT must_write;
    refusal := hold_places(of_rules, of_keys, states);
    is_locked := true;
  END LOOP;

  IF must_write THEN
    refusal := write_states(places, states, writes, now_us, numbers[6] = 1);
  END IF;
  RETURN reply;
END
$$;

-- How the rows of a call are held and written. What is locked stays where it is until the call ends.

-- The server's instant.
CREATE OR REPLACE FUNCTION clock_us() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT (date_part('epoch', clock_timestamp()) * 1e6)::bigint $$;

-- Refuse a call that would not be decided rightly, before anything is done.
CREATE OR REPLACE FUNCTION checked_call(numbers bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF numbers[1] <> version_number() THEN
    RAISE EXCEPTION 'the schema has version %', version_number() USING ERRCODE = 'TG002';
  ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'the isolation level is %', current_setting('transaction_isolation') USING ERRCODE = 'TG003';
  ELSIF current_setting('transaction_read_only') = 'on' THEN
    RAISE EXCEPTION 'the server or the session is read-only' USING ERRCODE = '25006';
  ELSIF numbers[5] > 0 THEN
    PERFORM set_config('lock_timeout', numbers[5]::text, true);
  END IF;
  RETURN 0;
END
$$;

-- Each of these keys has a row, in order; a new one says that the key was never charged.
CREATE OR REPLACE FUNCTION hold_places(of_rules bytea[], of_keys bytea[], states state[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO state (rule, key, sweep_at_us)
  SELECT u.rule, u.key, clock_us() + 60000000
  FROM unnest(of_rules, of_keys) WITH ORDINALITY u (rule, key, place)
  WHERE states[u.place].sweep_at_us IS NULL
  ORDER BY u.place
  ON CONFLICT DO NOTHING;
  RETURN 0;
END
$$;

-- The rows of these keys say what they are in full, where their names do not ('' where they do). A row is named by
-- the call that makes it, so nobody else has a hold on those that are named here.
CREATE OR REPLACE FUNCTION name_rows(of_rules bytea[], of_keys bytea[], wholes bytea[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  FOR i IN 1 .. coalesce(cardinality(wholes), 0) LOOP
    IF wholes[i] <> '' THEN
      UPDATE state t SET whole = wholes[i]
      WHERE t.rule = of_rules[i] AND t.key = of_keys[i] AND t.whole IS NULL;
    END IF;
  END LOOP;
  RETURN 0;
END
$$;

-- When the row may go, if its state is kept at `now_us`: a minute after the key is fresh, by the real clock. A told
-- instant may belong to a clock that runs slower than that, so then it stays for an hour. A strict rule's row stays
-- no shorter than was said before, for a reset said how long it must (forget.sql).
CREATE OR REPLACE FUNCTION sweep_instant_us(
  s state, now_us bigint, is_told boolean, is_strict boolean
) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF s.kind = 'L' AND s.p = 0 AND s.used > 0 THEN
    RETURN 9223372036854775807;
  END IF;
  RETURN greatest(CASE WHEN is_strict AND s.sweep_at_us < 9223372036854775807 THEN s.sweep_at_us END, (
    (CASE WHEN is_told THEN clock_us() + 3600000000 ELSE now_us + 60000000 END
      + greatest(0, fresh_at_us(s) - now_us)) / 60000000 + 1
  ) * 60000000);
END
$$;

-- The states that have an instant to be swept at are in their rows.
CREATE OR REPLACE FUNCTION write_states(places tid[], states state[], sweeps bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE state t SET
    sweep_at_us = w.sweep_us, kind = w.kind, room = w.room, q = w.q, p = w.p, length_us = w.length_us,
    parts = w.parts, calendar = w.calendar, used = w.used, before = w.before, at_us = w.at_us,
    busy_since_us = w.busy_since_us, given_back = w.given_back, start_us = w.start_us, end_us = w.end_us,
    series = w.series
  FROM unnest(places, sweeps, states) w (
    place, sweep_us, rule, key, sweep_at_us, kind, room, q, p, length_us, parts, calendar, used, before, at_us,
    busy_since_us, given_back, start_us, end_us, series
  )
  WHERE t.ctid = w.place AND w.sweep_us IS NOT NULL;
  RETURN 0;
END
$$;

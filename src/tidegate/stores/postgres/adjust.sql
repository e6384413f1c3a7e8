-- What comes after a decision: giving back, and charging on top.
--
-- `adjust` is called as `decide_named` is. Its numbers: 1 version, 2 to 4 unused, 5 lock timeout in ms, 6 whether an
-- instant is told, 7 that instant, 8 how many adjustments; then 22 numbers for each: the 13 of a charge (7, 8 and 9
-- do not matter), 13 units to give back (< 0) or thousandths that are owed (> 0), the receipt's 14 cost, 15 instant,
-- 16 busy period, 17 mark, 18 given back, and 19 own, 20 full, 21 debt in thousandths.
--
-- The reply: the instant, then for each adjustment 0 and the units by which the level went down (up if negative),
-- or 1 and the instant that is in no window that was told: then that one was not carried out.

CREATE OR REPLACE FUNCTION adjusted(
  INOUT s state, numbers bigint[], n int, l law, now_us bigint, epoch_us bigint, OUT changed bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  units CONSTANT bigint := -numbers[n + 13];
  given record;
  before bigint;
BEGIN
  changed := 0;
  IF units < 0 THEN
    s := current_state(s, l, now_us, numbers[n + 10], epoch_us);
    IF s.kind = 'F' AND s.start_us IS NULL THEN
      changed := NULL;
      RETURN;
    END IF;
    before := left_over(s);
    s := overdraw(s, -units, numbers[n + 21]);
    changed := left_over(s) - before;
    RETURN;
  ELSIF s.kind IS NULL OR s.kind = 'N' OR is_change(s, l) THEN  -- a changed limit voids what was taken before it
    RETURN;
  END IF;
  s := advance(s, l, now_us);
  IF s.kind = 'L' THEN
    given := level_give_back(
      s, units, numbers[n + 14], numbers[n + 15], numbers[n + 16], numbers[n + 17], numbers[n + 18],
      numbers[n + 19], numbers[n + 20] = 1
    );
  ELSIF s.kind = 'S' THEN
    given := sliding_give_back(s, units, numbers[n + 15], numbers[n + 16]);
  ELSIF s.kind = 'G' THEN
    given := log_give_back(s, units, numbers[n + 15], numbers[n + 16]);
  ELSE
    IF s.busy_since_us = numbers[n + 16] THEN
      changed := least(units, s.used);
      s.used := s.used - changed;
    END IF;
    RETURN;
  END IF;
  s := given.s;
  changed := given.returned;
END
$$;

CREATE OR REPLACE FUNCTION adjust(
  of_rules bytea[], of_keys bytea[], numbers bigint[], calendars text[], edges_us bigint[], wholes bytea[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  owed CONSTANT bigint[] := ARRAY(
    SELECT numbers[9 + 22 * a] FROM generate_series(0, numbers[8] - 1) a WHERE numbers[9 + 22 * a + 13] > 0
  );
  places tid[];
  states state[];
  sweeps bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(of_rules)]);
  now_us bigint;
  reply bigint[];
  n int := 9;
  place int;
  epoch bigint;
  locked record;
  done record;
  s state;
  checked bigint;
BEGIN
  checked := checked_call(numbers);
  FOR a IN 0 .. numbers[8] - 1 LOOP  -- before anything is locked, for whoever writes the epoch may wait for a lock
    IF epoch IS NULL AND numbers[9 + 22 * a + 11] = 1 AND numbers[9 + 22 * a + 13] > 0 THEN
      epoch := epoch_us(CASE WHEN numbers[6] = 1 THEN numbers[7] ELSE clock_us() END, true);
    END IF;
  END LOOP;
  INSERT INTO state (rule, key, sweep_at_us)  -- before anything is locked, as in decide.sql
  SELECT u.rule, u.key, clock_us() + 60000000
  FROM unnest(of_rules, of_keys) WITH ORDINALITY u (rule, key, place)
  WHERE u.place = ANY (owed)
  ORDER BY u.place
  ON CONFLICT DO NOTHING;
  FOR i IN 1 .. cardinality(of_rules) LOOP
    SELECT t.ctid AS place, t AS s INTO locked
    FROM state t WHERE t.rule = of_rules[i] AND t.key = of_keys[i] FOR NO KEY UPDATE;
    places[i] := locked.place;
    states[i] := locked.s;
    IF locked.place IS NULL AND i = ANY (owed) THEN
      RAISE EXCEPTION 'a key was forgotten' USING ERRCODE = 'TG001';
    END IF;
  END LOOP;
  now_us := CASE WHEN numbers[6] = 1 THEN numbers[7] ELSE clock_us() END;
  reply := ARRAY[now_us];
  FOR a IN 1 .. numbers[8] LOOP
    place := numbers[n];
    s := states[place];
    done := adjusted(
      s, numbers, n, law_of(numbers, n, calendars, edges_us), now_us,
      CASE WHEN numbers[n + 11] = 1 THEN epoch END
    );
    s := done.s;
    IF done.changed IS NULL THEN
      reply := reply || ARRAY[1, s.at_us];
    ELSE
      reply := reply || ARRAY[0, done.changed];
    END IF;
    IF done.changed <> 0 THEN
      states[place] := s;
      sweeps[place] := sweep_instant_us(s, now_us, numbers[6] = 1, numbers[n + 11] = 1);
      IF s.kind = 'G' THEN
        checked := log_write(s);  -- now, for the next one may look for this entry
      END IF;
    END IF;
    n := n + 22;
  END LOOP;
  checked := write_states(places, states, sweeps);
  checked := name_rows(of_rules, of_keys, wholes);
  RETURN reply;
END
$$;

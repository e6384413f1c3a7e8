-- Making keys fresh. Called as `adjust` is, with the header of its numbers alone.
--
-- Their rows stay, so that receipts of before return nothing afterwards, and for so long that a strict rule never
-- takes the key for one that was lost: until one that was used up at the epoch would have become fresh.
-- Where something may have been lost a key that has no state gets a row that says that it is fresh by any law
-- (kind N), for thirty days. The reply: the instant, and how many keys had a state.
CREATE OR REPLACE FUNCTION forget(
  of_rules bytea[], of_keys bytea[], numbers bigint[], wholes bytea[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  checked bigint := checked_call(numbers);
  now_us CONSTANT bigint := clock_us();
  since_us CONSTANT bigint := epoch_us(now_us, true);
  found_here bigint := 0;
  locked record;
BEGIN
  IF since_us IS NOT NULL THEN  -- before anything is locked, as in decide.sql
    INSERT INTO state (rule, key, sweep_at_us)
    SELECT u.rule, u.key, now_us + 60000000
    FROM unnest(of_rules, of_keys) WITH ORDINALITY u (rule, key, place)
    ORDER BY u.place
    ON CONFLICT DO NOTHING;
  END IF;
  FOR i IN 1 .. cardinality(of_rules) LOOP
    SELECT t.ctid AS place, coalesce(t.kind, 'N') AS kind INTO locked
    FROM state t WHERE t.rule = of_rules[i] AND t.key = of_keys[i] FOR NO KEY UPDATE;
    IF locked.kind <> 'N' THEN
      found_here := found_here + 1;
      UPDATE state t SET
        used = CASE WHEN t.kind = 'G' THEN t.used ELSE 0 END,
        before = CASE WHEN t.kind = 'G' THEN t.used WHEN t.kind = 'S' THEN 0 END,
        given_back = CASE WHEN t.kind = 'L' THEN 0 END,
        sweep_at_us = CASE WHEN since_us IS NULL THEN t.sweep_at_us ELSE greatest(
          t.sweep_at_us,
          CASE
            WHEN t.kind = 'L' AND t.p = 0 THEN 9223372036854775807
            ELSE ((60000000 + CASE
              WHEN t.kind = 'L' THEN since_us + (t.room + t.p - 1) / t.p
              WHEN t.kind = 'S' THEN since_us + 2 * t.length_us
              ELSE coalesce(since_us + t.length_us, t.end_us)
            END) / 60000000 + 1) * 60000000
          END
        ) END
      WHERE t.ctid = locked.place;
    ELSIF locked.place IS NULL AND since_us IS NOT NULL THEN
      RAISE EXCEPTION 'a key was forgotten' USING ERRCODE = 'TG001';
    ELSIF since_us IS NOT NULL THEN
      UPDATE state t SET kind = 'N', sweep_at_us = (now_us / 60000000 + 1) * 60000000 + 30 * 86400000000
      WHERE t.ctid = locked.place;
    END IF;
  END LOOP;
  checked := name_rows(of_rules, of_keys, wholes);
  RETURN ARRAY[now_us, found_here];
END
$$;
